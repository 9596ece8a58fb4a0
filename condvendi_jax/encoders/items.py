"""A user's prompts, texts and pictures: reading them, and which belongs to which."""

from __future__ import annotations

import collections
import io
import itertools
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import checks, extras, files
from condvendi_jax.encoders.answers import SURROGATES, Unfit
from condvendi_jax.encoders.record_files import known_fields, read_rows

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff")
UNREAD_ENDINGS = (".heic", ".heif", ".avif", ".svg", ".psd", ".jxl", ".jp2", ".eps", ".dng", ".raw")
"""Pictures that Pillow cannot decode in every installation."""
_ALL_ENDINGS = IMAGE_ENDINGS + UNREAD_ENDINGS
PROMPT_COLUMNS = ("prompt", "question", "caption", "text")
TEXT_COLUMNS = ("output", "response", "answer", "completion", "text")
IMAGE_COLUMNS = ("image", "file_name", "filename", "file", "path")
_DECIMAL = re.compile(r"[-+]?\d*\.\d+(e[-+]?\d+)?|[-+]?\d+e[-+]?\d+", re.IGNORECASE)
_NUMBER = re.compile(rf"[-+]?\d+|{_DECIMAL.pattern}", re.IGNORECASE)
TEXT_ENDINGS = (".txt", ".csv", ".jsonl")
_SHOWN = 3


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
    """Reads prompts, in UTF-8.

    Args:
      path: a .txt file of one prompt a line, a .csv file with a header, or a .jsonl file of one
        object a line.
      column: the column, or key, of the prompts; if unset, the first of `PROMPT_COLUMNS` there.

    Returns:
      At least one prompt; none is blank.

    Raises:
      ValueError: the file is missing, of another format, not UTF-8, empty or malformed; it has no
        such column, a blank prompt, or numbers instead of texts. The message
        gives the path and the line.
    """
    return _read_texts(path, column, PROMPT_COLUMNS, "prompts", blank=False)


def read_texts(path: str | PathLike[str], *, column: str | None = None) -> Texts:
    """Reads outputs that are texts, in the formats of `read_prompts`; a text may be empty.

    The column is the first of `TEXT_COLUMNS` if unset.
    """
    return _read_texts(path, column, TEXT_COLUMNS, "texts", blank=True)


def _read_texts(
    path: str | PathLike[str], named: str | None, names: Sequence[str], what: str, *, blank: bool
) -> Texts:
    path = files.expanded(path)
    suffix = path.suffix.lower()
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
            "it as a .npy file: np.save('x.npy', np.loadtxt(...)). If these are texts, put them "
            "into a .csv file with a header."
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


def list_images(folder: str | PathLike[str]) -> list[pathlib.Path]:
    """Returns the pictures of a folder in natural order: `img2` comes before `img10`.

    Hidden files are ignored. Pictures in the folders below, and pictures with an ending of
    `UNREAD_ENDINGS`, are left out with a warning.

    Raises:
      ValueError: there is no such folder, or no picture in it.
    """
    folder = files.expanded(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder.")
    shown = [path for path in folder.rglob("*") if "/." not in f"/{path.relative_to(folder)}"]
    paths = [p for p in shown if p.is_file() and p.name.lower().endswith(_ALL_ENDINGS)]
    images = [p for p in paths if p.parent == folder and p.name.lower().endswith(IMAGE_ENDINGS)]
    why, left_out = "", {*paths} - {*images}
    if left_out:
        why = (
            f"{len(left_out):,} pictures are left out, as they lie in folders below {folder} or in "
            f"formats that may not be decoded: {_some(sorted(path.name for path in left_out))}. "
            "Move them into the folder, or convert them to .png."
        )
    if not images:
        raise ValueError(f"{folder}: holds no pictures ({', '.join(IMAGE_ENDINGS)}). {why}")
    if why:
        checks.warn(why)
    return sorted(images, key=_natural)


def _natural(path: pathlib.Path) -> tuple[list[Any], str]:
    # Splitting at a group alternates: texts at even places, digits at odd ones.
    parts: list[Any] = re.split(r"(\d+)", path.name.casefold())
    parts[1::2] = map(int, parts[1::2])
    return parts, path.name


def pair_images(
    prompts: Texts, images: Sequence[pathlib.Path], *, column: str | None = None
) -> tuple[list[pathlib.Path], str | None]:
    """Pairs pictures with prompts: by the column that names the pictures, or else by order.

    The column is `column`, or else the first of `IMAGE_COLUMNS` that is there.

    Args:
      prompts: n prompts.
      images: the pictures of one folder. Those that the column does not name are left out, with a
        warning.
      column: the column that names the pictures, with or without folders and endings.

    Returns:
      n pictures, in the order of the prompts, and the column; None if order paired them.

    Raises:
      ValueError: the column is missing; a picture is named twice or is not there; or order pairs
        them, and their numbers differ, or another column seems to name them in another order.
    """
    path = prompts.path
    others = [name for name in prompts.columns if name != prompts.column]
    if column is not None:
        _column(prompts, column, (), "pictures")
    else:
        column = next(iter(known_fields(others, IMAGE_COLUMNS)), None)
    stems = collections.Counter(image.stem for image in images)
    by_name = {image.stem: image for image in images if stems[image.stem] == 1}
    by_name |= {image.name: image for image in images}
    if column is None:
        _check_numbers(prompts, [image.name for image in images], what="pictures")
        for other in others:
            names = _names(prompts, other)
            paired = [by_name.get(name) for name in names]
            has_endings = any(name.lower().endswith(_ALL_ENDINGS) for name in names)
            if (has_endings or {*paired} == {*images}) and paired != list(images):
                raise ValueError(
                    f"{path}: column {other!r} seems to name the pictures, in another order than "
                    f"that of the folder. Pair them by --image_column={other}, or remove it."
                )
        return list(images), None
    names = _names(prompts, column)
    if "" in names:
        line = prompts.rows[names.index("")][0]
        raise ValueError(f"{path}, line {line}: expected the name of a picture in {column!r}.")
    if absent := [name for name in names if name not in by_name]:
        raise ValueError(
            f"{path}: column {column!r} should name pictures, but {len(absent):,} of "
            f"{len(names):,} names match no picture in the folder: {_some(absent)}. A name without "
            "its ending must match exactly one picture. Correct the names, choose another column "
            "with --image_column, or remove this column to pair pictures by order."
        )
    counts = collections.Counter(by_name[name] for name in names)
    if repeated := [image.name for image, count in counts.items() if count > 1]:
        raise ValueError(f"{path}: column {column!r} names pictures twice: {_some(repeated)}.")
    if left := [image.name for image in images if image not in counts]:
        checks.warn(
            f"{path} does not name {len(left):,} of {len(images):,} pictures, which are left out: "
            f"{_some(left)}."
        )
    return list(counts), column


def _names(table: Texts, column: str) -> list[str]:
    """The last path part of every cell; empty where the cell holds neither a text nor a number."""
    cells = (row.get(column) for _, row in table.rows)
    texts = (str(cell).strip() if type(cell) in (str, int) else "" for cell in cells)
    return [re.split(r"[/\\]", text)[-1] for text in texts]


def pair_texts(prompts: Texts, texts: Texts) -> None:
    """Raises ValueError if texts and prompts are one column, or differ in number."""
    if prompts.column == texts.column and os.path.samefile(prompts.path, texts.path):
        column = f"the column {texts.column!r} " if texts.column else ""
        raise ValueError(
            f"{prompts.path}: {column}is both the texts and their prompts. Choose two columns with "
            "--prompt_column and --text_column, or give two files."
        )
    _check_numbers(prompts, texts.texts, what="texts")


def _check_numbers(prompts: Texts, items: Sequence[str], *, what: str) -> None:
    if len(items) != len(prompts.texts):
        raise ValueError(
            f"{prompts.path}: holds {len(prompts.texts):,} prompts for {len(items):,} "
            f"{what}; the first are {prompts.texts[0]!r} and {items[0]!r}."
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def decode_image(content: bytes, *, name: str, side: int | None = None) -> np.ndarray:
    """A picture as colours, the way that a viewer shows it.

    It is turned as its EXIF orientation says, put on white where it is transparent; of an animation
    the first frame is taken. Colour profiles are not applied.

    Args:
      content: what the file holds.
      name: of the file, for errors.
      side: the shorter side is resampled (bicubic) to this many pixels and the middle square is cut
        out. If unset, the picture keeps its size.

    Returns:
      uint8 `[height, width, 3]`, or `[side, side, 3]`.

    Raises:
      ValueError: it cannot be decoded, or Pillow is not installed.
    """
    with extras.needed("embed", package="Pillow", purpose="decoding pictures"):
        from PIL import Image, ImageOps
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
