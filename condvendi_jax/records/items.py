"""A user's prompts, texts and pictures: reading them, and which belongs to which."""

import collections
import contextlib
import itertools
import json
import os
import pathlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from condvendi_jax.base import checks, files, tables
from condvendi_jax.records.answers import SURROGATES, Unfit
from condvendi_jax.records.files import ending, read_rows
from condvendi_jax.records.record import Record, known_fields

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff")
UNREAD_ENDINGS = (".heic", ".heif", ".avif", ".svg", ".psd", ".jxl", ".jp2", ".eps", ".dng", ".raw")
"""Pictures that Pillow cannot decode in every installation."""
PICTURE_ENDINGS = IMAGE_ENDINGS + UNREAD_ENDINGS
PROMPT_COLUMNS = ("prompt", "question", "caption", "text")
TEXT_COLUMNS = ("output", "response", "answer", "completion", "text")
IMAGE_COLUMNS = ("image", "file_name", "filename", "file", "path")
_NUMBER = re.compile(r"[-+]?(\d+|\d*\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
TEXT_ENDINGS = (".txt", ".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow")
_SHOWN = 3
_Rows = dict[str, list[int | None]]  # Of prompts, by how they are known.
_TEXT = "text of the prompt in the names"
_NUMBERS = ("number of the prompt from 0", "number of the prompt from 1")


class Texts(NamedTuple):
    """Texts in the order of their file, and the name of their column ("" in a .txt file).

    `rows` are the first line and the cells of each row of the file at `path`.
    """

    texts: list[str]
    column: str
    path: pathlib.Path
    rows: list[tuple[int, Mapping[str, Any]]]

    @property
    def columns(self) -> list[str]:
        """The names of the columns that any row has; none in a .txt file."""
        return list(dict.fromkeys(name for _, row in self.rows for name in row if name))


def read_texts(path: files.StrPath, *, column: str | None = None, prompts: bool = False) -> Texts:
    """Reads texts, at least one, or raises ValueError with the path and line.

    The lines of a .txt file, or the `column` of a table, where None the first of `TEXT_COLUMNS`. Of
    `prompts` it is the first of `PROMPT_COLUMNS`, and none may be blank. A folder of pictures has
    the prompts of its files `metadata`, or the names of the folders in it.
    """
    table = Texts([], "", path := files.expanded(path), [])
    if path.is_dir():
        table.rows.extend(_of_pictures(path))
    elif ending(path) not in TEXT_ENDINGS:
        raise files.unread(path, TEXT_ENDINGS)
    elif ending(path) == ".txt":
        table.texts.extend(files.read_lines(path))
        table.rows.extend((k, {}) for k, _ in enumerate(table.texts, 1))
        _refuse_numbers(path, table.texts)
    else:
        files.check_there(path)
        table.rows.extend(_rows(path))
    if not table.rows:
        raise ValueError(f"{path}: holds no rows.")
    names, what = (PROMPT_COLUMNS, "prompts") if prompts else (TEXT_COLUMNS, "texts")
    column = _column(table, column, names, what)
    for line, row in table.rows if column else ():
        value, place = row.get(column), f"{path}, line {line}"
        if not isinstance(value, str):
            received = "nothing" if column not in row else f"{json.dumps(value)!s:.80}"
            expected = f"{place}: expected a text in {column!r}, received {received}."
            raise ValueError(f"{expected}{_saved(table, column)}")
        if prompts and not value.strip():
            raise ValueError(f"{place}: {column!r} is blank.")
        if SURROGATES.search(value):
            raise ValueError(f"{place}: {column!r} is not UTF-8, or holds half a surrogate pair.")
        table.texts.append(value)
    return table._replace(column=column)


def _refuse_numbers(path: pathlib.Path, texts: Sequence[str]) -> None:
    """Refuses numbers as `numpy.savetxt` writes them; integers and a 0.5 alone may be texts."""
    rows = [text.replace(",", " ").split() for text in texts if not text.startswith("#")]
    words = [word for row in rows for word in row]
    several = min(map(len, rows), default=0) > 1 and any("." in word for word in words)
    scientific = bool(words) and all("e" in word.lower() for word in words)
    if (several or scientific) and all(map(_NUMBER.fullmatch, words)):
        raise ValueError(
            f"{path}: expected texts, but each line holds numbers alone. If this is an array, save "
            "it as a .npy file: np.save('x.npy', np.loadtxt('x.csv', delimiter=',')). If these are "
            "texts, put them into a .csv file with a header."
        )


def _saved(table: Texts, column: Any) -> str:
    """The line of Python that saves a column of embeddings of a table in Parquet."""
    if ending(table.path) != ".parquet" or not isinstance(table.rows[0][1].get(column), list):
        return ""
    rows = f"pandas.read_parquet({str(table.path)!r})[{column!r}]"
    line = f"import numpy as np, pandas; np.save('x.npy', np.stack({rows}))"
    return f" If {column!r} holds embeddings, save them as an array: {line}"


def are_described(folder: files.StrPath) -> bool:
    """Whether files `metadata` in a folder hold a prompt for each of its pictures."""
    with contextlib.suppress(ValueError):
        images, names = list_images(folder, below=True), _metadata(files.expanded(folder))
        table = read_texts(folder, prompts=True)
        if not any(Record({**row}).is_complete for _, row in table.rows):  # These hold answers.
            return bool(names) and len(table.texts) == len(images)
    return False


def _metadata(folder: pathlib.Path) -> list[pathlib.Path]:
    paths = (path for path in folder.rglob("metadata.*") if ending(path) in TEXT_ENDINGS[1:])
    return sorted(paths, key=_natural)


def _of_pictures(folder: pathlib.Path) -> list[tuple[int, dict[str, Any]]]:
    """A row for each picture, with its prompt: of `metadata`, or else the name of its folder."""
    images, rows = list_images(folder, below=True), list[dict[str, Any]]()
    for path in _metadata(folder):
        table = list(_rows(path))
        # A row that is the only one is of all pictures in its folder and below.
        inside = [i for i in images if i.is_relative_to(path.parent)] if len(table) == 1 else []
        for line, row in table:
            names = known_fields(row, IMAGE_COLUMNS)[:1]
            if not (places := [path.parent / str(row[name]) for name in names] or inside):
                raise ValueError(f"{path}, line {line}: has no {' or '.join(IMAGE_COLUMNS)}.")
            more = {key: cell for key, cell in row.items() if key not in names}
            rows += [{"image": place.as_posix(), **more} for place in places]
    if not rows and folder not in {image.parent for image in images}:
        named = [(image.as_posix(), image.parent.relative_to(folder)) for image in images]
        rows = [{"image": image, "prompt": place.as_posix()} for image, place in named]
    return list(enumerate(rows, 1))


def _rows(path: pathlib.Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, row in read_rows(path):
        if isinstance(row, Unfit):
            raise ValueError(f"{path}, line {line}: {row}.")
        yield line, row


def _column(table: Texts, named: str | None, names: Sequence[str], what: str) -> str:
    """The column that is named, or else the first of `names`; '' in a .txt file."""
    columns = table.columns
    if not columns and named is not None:
        raise ValueError(f"{table.path}: has no columns, received {named!r} for its {what}.")
    known = known_fields(columns, names) if named is None else [named] * (named in columns)
    if known or not columns:
        return known[0] if known else ""
    if named is None:
        _refuse_numbers(table.path, [",".join(columns)])
    wanted = repr(named) if named is not None else " or ".join(names)
    lacks = f"has no column {wanted} for its {what}; its columns are {', '.join(columns)}."
    raise ValueError(f"{table.path}: {lacks}{''.join(_saved(table, name) for name in columns)}")


def list_images(folder: files.StrPath, *, below: bool = False) -> list[pathlib.Path]:
    """Returns the pictures of a folder in natural order: `img2` comes before `img10`.

    Hidden files are ignored. Pictures in the folders below, unless there are no others and `below`
    takes them, and pictures with an ending of `UNREAD_ENDINGS`, are left out with a warning.
    """
    if not (folder := files.expanded(folder)).is_dir():
        raise ValueError(f"{folder}: there is no such folder.")
    shown = [path for path in folder.rglob("*") if "/." not in f"/{path.relative_to(folder)}"]
    paths = [p for p in shown if p.is_file() and p.name.lower().endswith(PICTURE_ENDINGS)]
    images = [path for path in paths if path.name.lower().endswith(IMAGE_ENDINGS)]
    if below:  # Beside the samples GenEval puts a picture of all.
        samples = {path.parent.parent for path in images if path.parent.name == "samples"}
        images = [path for path in images if path.parent not in samples]
    images = [p for p in images if p.parent == folder] or (images if below else [])
    why, left_out = "", {*paths} - {*images}
    if left_out:
        named = "; if folders are named by their prompts, add --prompts=" * (not below)
        named += f"{folder} (of several models: their folders, with commas)" * (not below)
        why = (
            f"{len(left_out):,} pictures are left out, as they lie in folders below {folder}, "
            "beside a folder of samples, or in formats that may not be decoded: "
            f"{_some(sorted(path.name for path in left_out))}. "
            f"Move them into the folder, or convert them to .png{named}."
        )
    if not images:
        raise ValueError(f"{folder}: holds no pictures ({', '.join(IMAGE_ENDINGS)}). {why}")
    if why:
        checks.warn(why)
    return sorted(images, key=_natural)


def _natural(path: pathlib.Path) -> tuple[list[Any], str]:
    # Splitting at a group alternates: texts at even places, digits at odd ones.
    parts: list[Any] = re.split(r"(\d+)", str(path).casefold())
    parts[1::2] = map(int, parts[1::2])
    return parts, str(path)


def pair_images(
    prompts: Texts, images: Sequence[pathlib.Path], *, column: str | None = None
) -> tuple[list[pathlib.Path], list[int], str | None, str]:
    """The pictures, the row of the prompt of each, the column that names them, and how, in words.

    The column `column`, or else one of `IMAGE_COLUMNS` or of names of pictures, names the picture
    of each prompt. Without it, the names of the pictures, or of their folders, hold the text of the
    prompt, which may be cut: `a_red_car_3.png`. Else, as many pictures as prompts are paired by
    order. Otherwise the names begin with the number of the prompt from 0 or 1, or with what one of
    the columns holds: `000_3.png`, `000/3.png`.

    Pictures that it does not name are left out, with a warning. ValueError where names are unclear.
    """
    count = len(prompts.texts)
    cells = {name: _cells(prompts, name) for name in prompts.columns if name != prompts.column}
    folder = os.path.commonpath([image.parent for image in images])
    places = {image.relative_to(folder).as_posix(): image for image in images}
    if column is not None:
        _column(prompts, column, (), "pictures")
    else:
        named = [n for n in cells if all(c.lower().endswith(PICTURE_ENDINGS) for c in cells[n])]
        column = next(iter([*known_fields(cells, IMAGE_COLUMNS), *named]), None)
    if column is not None:
        cells = {column: _cells(prompts, column)}
        if "" in cells[column] or any(_images(cells[column], places)):
            return _by_column(prompts, column, cells[column], places)
    in_folders = any("/" in place for place in places)
    names = [p.rpartition("/")[0] if in_folders else i.stem for p, i in places.items()]
    where = "folders" if in_folders else "pictures"
    if in_folders and all({"seed", "seeds"} & {*_words(name)} for name in names):
        # Each folder has a picture for each prompt.
        names, where = [image.stem for image in images], "pictures"
    keys = {f"column {name!r}": texts for name, texts in cells.items()}
    if column is None:
        keys |= {how: list(map(str, range(k, count + k))) for k, how in enumerate(_NUMBERS)}
    starts, ends = _ways(names, keys)
    if column is None:
        held = _by_text(list(map(_words, names)), list(map(_words, prompts.texts)))
        by_text: list[int | None] = [min(rows) if len(rows) == 1 else None for rows in held]
        if len(images) == count and not in_folders and len({*by_text} - {None}) < count:
            starts = {"order": list(range(count)), **starts}
            by_text = [k if k in rows else min(rows, default=None) for k, rows in enumerate(held)]
        starts = {_TEXT: by_text, **starts}
    ways = starts | ends  # Numbers at the end may be of samples, and can only deny.
    lacks = {how: (rows.count(None), count - len({*rows} - {None})) for how, rows in ways.items()}
    how = min(starts, key=lacks.__getitem__)
    none, without = lacks[how]
    remedy = (
        "If a column says which prompt each picture belongs to, name it with --image_column. Else "
        "write a .csv file with the columns 'image' and 'prompt', and a line for each picture."
    )
    if none and prompts.path.is_dir():
        whose = f"{prompts.path}: has the prompts of its own pictures, not of those in {folder}"
        raise ValueError(f"{whose}. Name the folders of all: --prompts={prompts.path},{folder}.")
    if none or without:
        raise ValueError(
            f"{prompts.path}: holds {count:,} prompts for {len(images):,} pictures, whose names do "
            f"not tell which prompt each belongs to: by the {how}, {none:,} of {len(images):,} "
            f"pictures match no prompt and {without:,} of {count:,} prompts have no picture. "
            f"{remedy}"
        )
    certain = ("column", _TEXT)[: 1 + (how == "order")]  # Also where some pictures have no prompt.
    for other, rows in (starts if how == _TEXT else ways).items():
        decides = lacks[other] == (0, 0) or (other in starts and other.startswith(certain))
        if decides and any(row not in (None, k) for row, k in zip(rows, ways[how], strict=True)):
            raise ValueError(f"{prompts.path}: the {how} and the {other} disagree. {remedy}")
    rows = [row for row in ways[how] if row is not None]
    if how != "order":
        counts = tables.span(collections.Counter(rows).values())
        how = f"the {how} of the {where}, {counts} pictures a prompt"
    return list(images), rows, None, how


def _by_column(
    prompts: Texts, column: str, names: Sequence[str], places: Mapping[str, pathlib.Path]
) -> tuple[list[pathlib.Path], list[int], str, str]:
    """As `pair_images`, the pictures that a column names, one a prompt."""
    pictures = _images(names, places)
    if "" in names:
        place = f"{prompts.path}, line {prompts.rows[names.index('')][0]}"
        raise ValueError(f"{place}: expected the name of a picture in {column!r}.")
    if absent := [name for name, image in zip(names, pictures, strict=True) if image is None]:
        raise ValueError(
            f"{prompts.path}: column {column!r} should name pictures, but {len(absent):,} of "
            f"{len(names):,} names match no picture in the folder: {_some(absent)}. A name without "
            "its ending must match exactly one picture. Correct the names, choose another column "
            "with --image_column, or remove this column to pair pictures by order."
        )
    counts = collections.Counter(filter(None, pictures))
    if twice := [image.name for image, count in counts.items() if count > 1]:
        raise ValueError(f"{prompts.path}: column {column!r} names pictures twice: {_some(twice)}.")
    if left := [image.name for image in places.values() if image not in counts]:
        count = f"{len(left):,} of {len(places):,} pictures"
        checks.warn(f"{prompts.path} does not name {count}, which are left out: {_some(left)}.")
    return list(counts), list(range(len(names))), column, f"image column {column!r}"


def _cells(table: Texts, column: str) -> list[str]:
    """The cells of a column; empty where one holds neither a text nor a whole number."""
    cells = (row.get(column) for _, row in table.rows)
    return [str(cell).strip() if type(cell) in (str, int) else "" for cell in cells]


def _images(cells: Sequence[str], places: Mapping[str, pathlib.Path]) -> list[pathlib.Path | None]:
    """The pictures that cells name by their place below the folder, or by a name of one picture."""
    known = collections.defaultdict(set)
    for place, image in places.items():
        for name in (place, image.as_posix(), image.name, image.stem):
            known[name].add(image)
    cells = [cell.replace("\\", "/") for cell in cells]
    images = [known.get(cell) or known.get(cell.rpartition("/")[2], set()) for cell in cells]
    return [next(iter(some)) if len(some) == 1 else None for some in images]


def _ways(names: Sequence[str], keys: Mapping[str, Sequence[str]]) -> tuple[_Rows, _Rows]:
    """The rows whose keys the names begin with, and those they end with, by what the keys are."""
    split = list(map(_words, names))
    common = itertools.takewhile(lambda word: not word.isdecimal(), os.path.commonprefix(split))
    # Names may begin with words that all have.
    shorter = [name[k:] for k in [len(list(common))] for name in split]
    starts, ends = {}, {}
    for how, texts in keys.items():
        words = list(map(_words, texts))
        start = (_matches(begun, words) for begun in (split, shorter))
        starts[f"{how} at the start of the names"] = min(start, key=lambda rows: rows.count(None))
        back = [[words[::-1] for words in texts] for texts in (split, words)]
        ends[f"{how} at the end of the names"] = _matches(*back)
    return starts, ends


def _words(text: str) -> tuple[str, ...]:
    """The words and numbers of a name, numbers without zeros before them."""
    plain = re.sub("['’\u0300-\u036f]", "", unicodedata.normalize("NFKD", text.casefold()))
    words = re.findall(r"\d+|[^\W\d_]+", plain)
    return tuple(str(int(word)) if word.isdecimal() else word for word in words)


def _matches(names: Sequence[Any], keys: Sequence[Any]) -> list[int | None]:
    """The row whose key begins each name; None if none or several."""
    rows = {key: row for row, key in enumerate(keys)}
    if len(rows) < len(keys) or () in rows:  # Repeated, or blank.
        return [None] * len(names)
    hits = [{rows[name[:k]] for k in range(len(name) + 1) if name[:k] in rows} for name in names]
    return [some.pop() if len(some) == 1 else None for some in hits]


def _by_text(names: Sequence[Any], texts: Sequence[Any]) -> list[set[int]]:
    """The longest texts that each name holds; or are cut to it; or share its rarest long words."""
    rows_of, in_all = collections.defaultdict(set), set.intersection(*map(set, names))
    for row, text in enumerate(texts):
        for word in text:
            rows_of[word].add(row)

    def sharing(words: set[str]) -> set[int]:
        rows: set[int] = set()
        for some in sorted((rows_of[word] for word in words & rows_of.keys()), key=len):
            rows = rows & some or rows or some
        return rows

    chosen = []
    for name in names:
        words, whole = {word for word in name if not word.isdecimal()}, " ".join(name)
        near = {row: " ".join(texts[row]) for row in sharing(words)}
        held = {row for row, text in near.items() if f" {text} " in f" {whole} "}
        longest = {row for row in held if len(near[row]) == max(len(near[r]) for r in held)}
        cut = {row for row, text in near.items() if text.startswith(whole.strip("0123456789 "))}
        chosen.append(longest or cut or sharing({w for w in words - in_all if len(w) > 2}))
    return chosen


def pair_texts(prompts: Texts, texts: Texts) -> None:
    """Raises ValueError if texts and prompts are equal, or differ in number."""
    if prompts.texts == texts.texts:
        mend = "Choose two columns with --prompt_column and --text_column, or give two files."
        raise ValueError(f"{prompts.path}: is both the texts and their prompts. {mend}")
    if len(texts.texts) != len(prompts.texts):
        raise ValueError(
            f"{prompts.path}: holds {len(prompts.texts):,} prompts for {len(texts.texts):,} texts. "
            "Write a .csv file with the columns 'answer' and 'prompt', and a line for each answer."
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
