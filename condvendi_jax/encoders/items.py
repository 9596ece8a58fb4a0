"""A user's prompts, texts and pictures: reading them, and which belongs to which."""

from __future__ import annotations

import collections
import csv
import io
import itertools
import json
import os
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import checks, extras, files
from condvendi_jax.encoders.answers import SURROGATES, Unfit
from condvendi_jax.encoders.record_files import ending, known_fields, read_rows

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff")
UNREAD_ENDINGS = (".heic", ".heif", ".avif", ".svg", ".psd", ".jxl", ".jp2", ".eps", ".dng", ".raw")
"""Pictures that Pillow cannot decode in every installation."""
_ALL_ENDINGS = IMAGE_ENDINGS + UNREAD_ENDINGS
PROMPT_COLUMNS = ("prompt", "question", "caption", "text")
TEXT_COLUMNS = ("output", "response", "answer", "completion", "text")
IMAGE_COLUMNS = ("image", "file_name", "filename", "file", "path")
_DECIMAL = re.compile(r"[-+]?\d*\.\d+(e[-+]?\d+)?|[-+]?\d+e[-+]?\d+", re.IGNORECASE)
_NUMBER = re.compile(rf"[-+]?\d+|{_DECIMAL.pattern}", re.IGNORECASE)
TEXT_ENDINGS = (".txt", ".csv", ".tsv", ".jsonl", ".json", ".parquet")
_SHOWN = 3
_Rows = dict[str, list[int | None]]  # Of prompts, by how they are known.
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


def read_prompts(path: str | PathLike[str], *, column: str | None = None) -> Texts:
    """Reads prompts, at least one and none blank, or raises ValueError with the path and line.

    Args:
      path: a .txt file of one prompt a line, a .csv file with a header, or a .jsonl file of one
        object a line, in UTF-8.
      column: the column, or key, of the prompts; if unset, the first of `PROMPT_COLUMNS` there.
    """
    return _read_texts(path, column, PROMPT_COLUMNS, "prompts", blank=False)


def read_texts(path: str | PathLike[str], *, column: str | None = None) -> Texts:
    """Reads outputs that are texts, in the formats of `read_prompts`; a text may be empty.

    The column is the first of `TEXT_COLUMNS` if unset.
    """
    return _read_texts(path, column, TEXT_COLUMNS, "texts", blank=True)


def folder_prompts(
    folder: str | PathLike[str], *, column: str | None = None, named: bool = False
) -> Texts:
    """The prompt of each picture of a folder, as its files `metadata` have it.

    Such a file, .jsonl or .csv, has a row for each picture (`imagefolder` of Hugging Face) or one
    for all of its folder (GenEval). Where `named`, the names of folders are the prompts instead.
    """
    folder = files.expanded(folder)
    if named:
        images = list_images(folder, below=True)
        if images[0].parent == folder:
            raise ValueError(f"{folder}: expected pictures in folders alone, named by prompts.")
        names = [f"{i.parent.relative_to(folder)}".removesuffix(f"{os.sep}samples") for i in images]
        found = [({"prompt": name}, image) for name, image in zip(names, images, strict=True)]
    else:
        found = [pair for path in _metadata(folder) for pair in _of_metadata(path)]
    table = Texts([], "", folder, [])
    for number, (row, image) in enumerate(found, 1):
        table.rows.append((number, row | {"image": image.as_posix()}))
    return _with_texts(table, column, PROMPT_COLUMNS, "prompts", blank=False)


def has_prompts(folder: str | PathLike[str], *, column: str | None = None) -> bool:
    """Whether the first row of the files `metadata` of a folder has a prompt."""
    _, row = next(
        (row for path in _metadata(files.expanded(folder)) for row in read_rows(path)), (1, {})
    )
    return isinstance(row, dict) and bool(known_fields(row, [column] if column else PROMPT_COLUMNS))


def _metadata(folder: pathlib.Path) -> list[pathlib.Path]:
    paths = [*folder.rglob("metadata.jsonl"), *folder.rglob("metadata.csv")]
    return sorted(paths, key=_natural)


def _of_metadata(path: pathlib.Path) -> list[tuple[dict[Any, Any], pathlib.Path]]:
    """The rows of a file of metadata, each with a picture that it is of."""
    found, rows = [], list(read_rows(path))
    for line, row in rows:
        if isinstance(row, Unfit):
            raise ValueError(f"{path}, line {line}: {row}.")
        name = next((row[key] for key in known_fields(row, IMAGE_COLUMNS)), None)
        if name is not None:
            found.append((row, path.parent / str(name)))
        elif len(rows) == 1:
            samples = path.parent / "samples"
            images = list_images(samples if samples.is_dir() else path.parent, below=True)
            return [(row, image) for image in images]
        else:
            raise ValueError(
                f"{path}, line {line}: expected the name of a picture in one of "
                f"{', '.join(IMAGE_COLUMNS)}, or one row for all pictures of the folder."
            )
    return found


def _read_texts(
    path: str | PathLike[str], named: str | None, names: Sequence[str], what: str, *, blank: bool
) -> Texts:
    path = files.expanded(path)
    suffix = ending(path)
    if suffix not in TEXT_ENDINGS:
        raise ValueError(f"{path}: expected a file ending in {', '.join(TEXT_ENDINGS)}.")
    table = Texts([], "", path, [])
    if suffix == ".txt":
        table.texts.extend(files.read_lines(path))
        table.rows.extend((k, {"": line}) for k, line in enumerate(table.texts, 1))
        _refuse_numbers(path, table.texts)
    else:
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file.")
        for line, row in read_rows(path):
            if isinstance(row, Unfit):
                raise ValueError(f"{path}, line {line}: {row}.")
            table.rows.append((line, row))
    if not table.rows:
        raise ValueError(f"{path}: holds no rows.")
    return _with_texts(table, named, names, what, blank=blank)


def _with_texts(
    table: Texts, named: str | None, names: Sequence[str], what: str, *, blank: bool
) -> Texts:
    """The table with the texts of its column, after checks."""
    path = table.path
    column = _column(table, named, names, what)
    for line, row in table.rows if column else ():
        value = row.get(column)
        if not isinstance(value, str):
            received = "nothing" if column not in row else json.dumps(value)
            raise ValueError(
                f"{path}, line {line}: expected a text in {column!r}, received {received}."
            )
        if not (blank or value.strip()):
            raise ValueError(f"{path}, line {line}: {column!r} is blank.")
        if SURROGATES.search(value):
            raise ValueError(
                f"{path}, line {line}: {column!r} is not UTF-8, or holds half a surrogate pair."
            )
        table.texts.append(value)
    return table._replace(column=column)


def _refuse_numbers(path: pathlib.Path, texts: Sequence[str]) -> None:
    """Refuses numbers as `numpy.savetxt` writes them; integers and a 0.5 alone may be texts."""
    rows = [text.replace(",", " ").split() for text in texts]
    rows = list(itertools.dropwhile(lambda row: row[:1] and row[0][0] == "#", rows)) or [[]]
    words = [word for row in rows for word in row]
    several = min(map(len, rows)) > 1 and any(map(_DECIMAL.fullmatch, words))
    scientific = bool(words) and all("e" in word.lower() for word in words)
    if (several or scientific) and all(map(_NUMBER.fullmatch, words)):
        raise ValueError(
            f"{path}: expected texts, but each line holds numbers alone. If this is an array, save "
            "it as a .npy file: np.save('x.npy', np.loadtxt('x.csv', delimiter=',')). If these are "
            "texts, put them into a .csv file with a header."
        )


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
    raise ValueError(
        f"{table.path}: has no column {wanted} for its {what}; its columns are "
        f"{', '.join(columns)}."
    )


def list_images(folder: str | PathLike[str], *, below: bool = False) -> list[pathlib.Path]:
    """Returns the pictures of a folder in natural order: `img2` comes before `img10`.

    Hidden files are ignored. Pictures in the folders below, unless there are no others and `below`
    takes them, and pictures with an ending of `UNREAD_ENDINGS`, are left out with a warning.
    """
    folder = files.expanded(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder.")
    shown = [path for path in folder.rglob("*") if "/." not in f"/{path.relative_to(folder)}"]
    paths = [p for p in shown if p.is_file() and p.name.lower().endswith(_ALL_ENDINGS)]
    images = [path for path in paths if path.name.lower().endswith(IMAGE_ENDINGS)]
    if below:  # Beside the samples GenEval puts a picture of all.
        samples = {path.parent.parent for path in images if path.parent.name == "samples"}
        images = [path for path in images if path.parent not in samples]
    images = [p for p in images if p.parent == folder] or (images if below else [])
    why, left_out = "", {*paths} - {*images}
    if left_out:
        why = (
            f"{len(left_out):,} pictures are left out, as they lie in folders below {folder}, "
            "beside a folder of samples, or in formats that may not be decoded: "
            f"{_some(sorted(path.name for path in left_out))}. "
            "Move them into the folder, or convert them to .png; if folders are named by prompts, "
            "write --prompts=folders."
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


class Pairing(NamedTuple):
    """Pictures, the row of the prompt of each, the column that names them, and how, in words."""

    images: list[pathlib.Path]
    rows: list[int]
    column: str | None
    how: str


def pair_images(
    prompts: Texts, images: Sequence[pathlib.Path], *, column: str | None = None
) -> Pairing:
    """Pairs pictures with prompts.

    The column `column`, or else the first of `IMAGE_COLUMNS` that is there, names the picture of
    each prompt. Without it, as many pictures as prompts are paired by order. Otherwise the names of
    the pictures, or of their folders, hold the number of the prompt from 0 or 1, or what one of the
    columns holds: `000_3.png`, `000/3.png`.

    Pictures that the column does not name are left out, with a warning. What cannot be known is a
    ValueError, with the file to write.
    """
    path = prompts.path
    others = [name for name in prompts.columns if name != prompts.column]
    if column is not None:
        _column(prompts, column, (), "pictures")
    else:
        column = next(iter(known_fields(others, IMAGE_COLUMNS)), None)
    folder = os.path.commonpath([image.parent for image in images])
    places = {image.relative_to(folder).as_posix(): image for image in images}
    in_folders = any("/" in place for place in places)
    names = [p.rpartition("/")[0] if in_folders else i.stem for p, i in places.items()]
    seeds = in_folders and all({"seed", "seeds"} & {*_words(name)} for name in names)
    if seeds:  # Each folder has a picture for each prompt.
        names = [image.stem for image in images]
    cells = {name: _cells(prompts, name) for name in (others if column is None else [column])}
    found = {name: _pictures(cells[name], places) for name in cells}
    keys = {f"column {name!r}": texts for name, texts in cells.items()}
    count, in_order = len(prompts.texts), list(range(len(images)))
    if column is None:
        keys |= {how: list(map(str, range(k, count + k))) for k, how in enumerate(_NUMBERS)}
    starts, ends = _ways(names, keys)
    write = _to_write(prompts, list(places), "image")
    if column is None and len(images) == count and not in_folders:
        others = [
            f"the {how}"
            for how, of in (starts | ends).items()
            if {*of} == {*in_order} and of != in_order
        ]
        others += [
            f"column {name!r}"
            for name, texts in cells.items()
            if any(cell.lower().endswith(_ALL_ENDINGS) for cell in texts)
            and found[name] != list(images)
        ]
        if others:
            raise ValueError(
                f"{path}: {others[0]} seems to name the pictures, in another order than the "
                f"folder's. If a column names them, pass it as --image_column. {write}"
            )
        return Pairing(list(images), in_order, None, "order")
    how = ""
    if column is None or not any(found[column] + [cell == "" for cell in cells[column]]):
        rows, how = _by_names(starts, ends, count)
        where = "folders" if in_folders and not seeds else "pictures"
        if rows:
            each = span(collections.Counter(rows).values())
            how = f"the {how} of the {where}, {each} pictures a prompt"
            return Pairing(list(images), rows, None, how)
    if column is None:
        raise ValueError(
            f"{path}: holds {count:,} prompts for {len(images):,} pictures, whose names do "
            f"not tell which prompt each belongs to{how}. If a column says it, name it with "
            f"--image_column. {write}"
        )
    names, pictures = cells[column], found[column]
    if "" in names:
        line = prompts.rows[names.index("")][0]
        raise ValueError(f"{path}, line {line}: expected the name of a picture in {column!r}.")
    if absent := [name for name, image in zip(names, pictures, strict=True) if image is None]:
        raise ValueError(
            f"{path}: column {column!r} should name pictures, but {len(absent):,} of "
            f"{len(names):,} names match no picture in the folder: {_some(absent)}. A name without "
            "its ending must match exactly one picture. Correct the names, choose another column "
            "with --image_column, or remove this column to pair pictures by order."
        )
    counts = collections.Counter(filter(None, pictures))
    if repeated := [image.name for image, count in counts.items() if count > 1]:
        raise ValueError(f"{path}: column {column!r} names pictures twice: {_some(repeated)}.")
    if left := [image.name for image in images if image not in counts]:
        checks.warn(
            f"{path} does not name {len(left):,} of {len(images):,} pictures, which are left out: "
            f"{_some(left)}."
        )
    return Pairing(list(counts), list(range(count)), column, f"image column {column!r}")


def _cells(table: Texts, column: str) -> list[str]:
    """The cells of a column; empty where one holds neither a text nor a whole number."""
    cells = (row.get(column) for _, row in table.rows)
    return [str(cell).strip() if type(cell) in (str, int) else "" for cell in cells]


def _pictures(
    cells: Sequence[str], places: Mapping[str, pathlib.Path]
) -> list[pathlib.Path | None]:
    """The pictures that cells name by their place below the folder, or by a name of one picture."""
    by_name = dict(places) | {image.as_posix(): image for image in places.values()}
    for names in ([i.name for i in places.values()], [i.stem for i in places.values()]):
        counts = collections.Counter(names)
        unique = {n: i for n, i in zip(names, places.values(), strict=True) if counts[n] == 1}
        by_name = unique | by_name
    cells = [cell.replace("\\", "/") for cell in cells]
    return [by_name.get(cell) or by_name.get(cell.rpartition("/")[2]) for cell in cells]


def _ways(names: Sequence[str], keys: Mapping[str, Sequence[str]]) -> tuple[_Rows, _Rows]:
    """The rows whose keys the names begin with, and those they end with, by what the keys are."""
    split = list(map(_words, names))
    common = [word for word in os.path.commonprefix(split) if not word.isdecimal()]
    starts, ends = {}, {}
    for how, texts in keys.items():
        words = list(map(_words, texts))
        after = (_matches([name[k:] for name in split], words) for k in (0, len(common)))
        starts[f"{how} at the start of the names"] = min(after, key=lambda rows: rows.count(None))
        back = [[name[::-1] for name in of] for of in (split, words)]
        ends[f"{how} at the end of the names"] = _matches(*back)
    return starts, ends


def _by_names(starts: _Rows, ends: _Rows, count: int) -> tuple[list[int], str]:
    """The row of the prompt of each name, and how it is known; no rows, and why, where it is not.

    The start of the names tells it if nothing denies it: numbers at the end may be of samples.
    """
    ways = starts | ends
    lacks = {how: (of.count(None), count - len({*of} - {None})) for how, of in ways.items()}
    how = min(starts, key=lacks.__getitem__)
    none, without = lacks[how]
    if none or without:
        return [], (
            f": by the {how}, {none:,} of {len(ways[how]):,} pictures match no prompt and "
            f"{without:,} of {count:,} prompts have no picture"
        )
    rows = [row for row in ways[how] if row is not None]
    for other, found in ways.items():
        decides = lacks[other] == (0, 0) or (other in starts and not other.startswith(_NUMBERS))
        if decides and any(row not in (None, own) for row, own in zip(found, rows, strict=True)):
            return [], f": the {how} and the {other} disagree"
    return rows, how


def _words(text: str) -> tuple[str, ...]:
    """The words and numbers of a name."""
    return tuple(re.findall(r"\d+|[^\W\d_]+", text.casefold()))


def _matches(names: Sequence[Any], keys: Sequence[Any]) -> list[int | None]:
    """The row whose key begins each name, zeros before numbers aside; None if none or several."""

    def plain(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple((word.lstrip("0") or "0") if word.isdecimal() else word for word in words)

    rows = {plain(key): row for row, key in enumerate(keys)}
    if len(rows) < len(keys) or () in rows:  # Repeated, or blank.
        return [None] * len(names)
    lengths, found, spelled = {*map(len, rows)}, [], collections.defaultdict(set)
    for name in names:
        parts = {name[:k] for k in lengths if len(name) >= k}
        hits = {part: rows[plain(part)] for part in parts if plain(part) in rows}
        found.append(next(iter(hits.values())) if len(hits) == 1 else None)
        for part, row in hits.items():
            spelled[row].add(part)
    return [None if row is None or len(spelled[row]) > 1 else row for row in found]


def _to_write(prompts: Texts, items: Sequence[str], column: str) -> str:
    """How to say which prompt each of several items belongs to, with the first lines to copy."""
    stream, last = io.StringIO(), len(prompts.texts) - 1
    each = max(1, len(items) // len(prompts.texts))
    rows = [[item, prompts.texts[min(k // each, last)]] for k, item in enumerate(items[:_SHOWN])]
    csv.writer(stream, lineterminator="\n").writerows([[column, "prompt"], *rows])
    return (
        f"Write a .csv file with a line for each {column} and its prompt. If they are in the order "
        f"of the prompts, it begins:\n{stream.getvalue()}"
    )


def pair_texts(prompts: Texts, texts: Texts) -> None:
    """Raises ValueError if texts and prompts are one column, or differ in number."""
    if prompts.column == texts.column and os.path.samefile(prompts.path, texts.path):
        column = f"the column {texts.column!r} " if texts.column else ""
        raise ValueError(
            f"{prompts.path}: {column}is both the texts and their prompts. Choose two columns with "
            "--prompt_column and --text_column, or give two files."
        )
    if len(texts.texts) != len(prompts.texts):
        raise ValueError(
            f"{prompts.path}: holds {len(prompts.texts):,} prompts for {len(texts.texts):,} texts. "
            f"{_to_write(prompts, texts.texts, 'answer')}"
        )


def span(counts: Collection[int]) -> str:
    """The least and the most of some numbers, once where they are equal."""
    return " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def pillow() -> tuple[Any, Any]:
    """Pillow's modules `Image` and `ImageOps`; MissingExtra if it is not installed."""
    with extras.needed("embed", package="Pillow", purpose="decoding pictures"):
        from PIL import Image, ImageOps
    return Image, ImageOps


def decode_image(content: bytes, *, name: str, side: int | None = None) -> np.ndarray:
    """A picture as colours, uint8 `[height, width, 3]`, the way that a viewer shows it.

    It is turned as its EXIF orientation says, put on white where it is transparent; of an animation
    the first frame is taken. Colour profiles are not applied. With `side`, the shorter side is
    resampled (bicubic) to this many pixels, and the middle square is cut out. `name` is for errors.
    """
    Image, ImageOps = pillow()  # noqa: N806 - as Pillow names them.
    try:
        with Image.open(io.BytesIO(content)) as opened:
            picture = ImageOps.exif_transpose(opened)
            if picture.mode == "F":  # Pillow would clip it: 0..1 would become black.
                raise ValueError("expected colours of 8 or 16 bits, received real numbers.")
            if picture.mode.startswith("I"):  # Grey of 16 or 32 bits, which Pillow would clip to 8.
                grey = np.asarray(picture).astype(np.int64)
                if grey.min() < 0 or grey.max() > 65535:
                    raise ValueError("expected colours of 8 or 16 bits, received wider integers.")
                scale = 257 if grey.max() > 255 else 1  # Of 16 bits, 0 to 255 would be all black.
                picture = Image.fromarray((grey // scale).astype(np.uint8))
            if picture.has_transparency_data:
                white = Image.new("RGBA", picture.size, "white")
                picture = Image.alpha_composite(white, picture.convert("RGBA"))
            picture = picture.convert("RGB")
            if side is not None:
                picture = ImageOps.fit(picture, (side, side), Image.Resampling.BICUBIC)
            return np.array(picture)
    except Exception as error:  # Damaged pictures fail in any of the decoders' ways.
        raise ValueError(f"{name}: cannot be decoded as a picture: {error}") from error
