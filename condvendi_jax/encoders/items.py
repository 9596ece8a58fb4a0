"""A user's own prompts, texts and pictures: reading them, and which belongs to which."""

from __future__ import annotations

import collections
import csv
import io
import json
import pathlib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax import files
from condvendi_jax.encoders.interface import EXTRA_COMMAND

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
PROMPT_COLUMNS = ("prompt", "caption", "text")
TEXT_COLUMNS = ("output", "response", "completion", "text")
IMAGE_COLUMNS = ("image", "file", "filename", "file_name")
_TABLES = (".txt", ".csv", ".jsonl")
_SHOWN = 3


class Prompts(NamedTuple):
    """What a prompts file says.

    Attributes:
      texts: the prompts, in the order of the file.
      images: the name of each one's picture, where the file names pictures.
      path: the file.
    """

    texts: list[str]
    images: list[str] | None
    path: pathlib.Path


def read_prompts(
    path: str | PathLike[str], *, column: str | None = None, image_column: str | None = None
) -> Prompts:
    """Reads prompts, in UTF-8, with or without the names of their pictures.

    Args:
      path: a .txt file of one prompt a line, a .csv file with a header, or a .jsonl file of one
        object a line.
      column: which column, or key, holds the prompts; unset, the first there is of `prompt`,
        `caption` and `text`.
      image_column: which one names the pictures; unset, the first of `image`, `file`, `filename`
        and `file_name`, if there is any.

    Returns:
      At least one prompt; none is blank.

    Raises:
      ValueError: the file is missing, of another format, not UTF-8, empty or malformed, or holds
        no such column or a blank prompt; the message gives the path and the line.
    """
    table = _read_table(path)
    chosen = _column(table, column, PROMPT_COLUMNS, "prompts")
    texts = _values(table, chosen)
    if image_column is None and not any(_known(table, IMAGE_COLUMNS)):
        return Prompts(texts, None, table.path)
    images = _values(table, _column(table, image_column, IMAGE_COLUMNS, "pictures"))
    return Prompts(texts, images, table.path)


def read_texts(path: str | PathLike[str], *, column: str | None = None) -> list[str]:
    """Reads outputs that are texts, in UTF-8.

    Args:
      path: a .txt file of one text a line, or .csv or .jsonl, whose texts may have many lines or
        be empty, as a model's answers are now and then.
      column: which column, or key, holds them; unset, the first there is of `output`, `response`,
        `completion` and `text`.

    Raises:
      ValueError: as `read_prompts`.
    """
    table = _read_table(path)
    return _values(table, _column(table, column, TEXT_COLUMNS, "texts"), blank=True)


class _Table(NamedTuple):
    """Rows with the lines that they begin in; the one column of a .txt file has no name."""

    path: pathlib.Path
    columns: list[str]
    rows: list[tuple[int, Mapping[str, Any]]]


def _read_table(path: str | PathLike[str]) -> _Table:
    path = files.expanded(path)
    suffix = path.suffix.lower()
    if suffix not in _TABLES:
        raise ValueError(f"{path}: expected a file ending in {', '.join(_TABLES)}.")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: is not UTF-8 ({error.reason}).") from error
    read = {".txt": _read_lines, ".csv": _read_csv, ".jsonl": _read_jsonl}[suffix]
    table = read(path, text)
    if not table.rows:
        raise ValueError(f"{path}: holds no rows.")
    return table


def _lines(path: pathlib.Path, text: str) -> list[str]:
    # Not splitlines: a prompt may hold the other characters that Unicode counts as line ends.
    lines = text.removesuffix("\n").split("\n") if text else []
    lines = [line.removesuffix("\r") for line in lines]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise ValueError(f"{path}, line {number}: is blank.")
    return lines


def _read_lines(path: pathlib.Path, text: str) -> _Table:
    return _Table(path, [], [(n, {"": line}) for n, line in enumerate(_lines(path, text), 1)])


def _read_csv(path: pathlib.Path, text: str) -> _Table:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    rows = []
    line = 1
    try:
        for cells in reader:
            if not cells:
                raise ValueError(f"{path}, line {line}: is blank.")
            if not columns:
                columns = cells
                _refuse_repeated(path, columns)
            elif len(cells) != len(columns):
                raise ValueError(
                    f"{path}, line {line}: holds {len(cells)} cells, the header {len(columns)}."
                )
            else:
                rows.append((line, dict(zip(columns, cells, strict=True))))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: {error}.") from error
    return _Table(path, columns, rows)


def _refuse_repeated(path: pathlib.Path, columns: list[str]) -> None:
    repeated = _repeated(columns)
    if repeated:
        raise ValueError(f"{path}, line 1: names the column {repeated[0]!r} twice.")


def _read_jsonl(path: pathlib.Path, text: str) -> _Table:
    rows = []
    for number, line in enumerate(_lines(path, text), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: is not JSON ({error}).") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected an object {{...}}.")
        rows.append((number, row))
    # Of any row: one that lacks what others have is named, not passed over.
    return _Table(path, list(dict.fromkeys(name for _, row in rows for name in row)), rows)


def _known(table: _Table, names: Sequence[str]) -> list[str]:
    """The table's columns among `names`, in the order of `names`."""
    plain = {column.strip().casefold(): column for column in reversed(table.columns)}
    return [plain[name] for name in names if name in plain]


def _column(table: _Table, named: str | None, names: Sequence[str], what: str) -> str:
    """The column that is named, or else the first of `names`; '' in a .txt file."""
    if not table.columns:
        if named is not None:
            raise ValueError(f"{table.path}: has no columns, received {named!r} for its {what}.")
        return ""
    found = [column for column in table.columns if column == named] or _known(table, names)
    if not found or named not in (None, found[0]):
        wanted = f"column {named!r}" if named is not None else f"column {' or '.join(names)}"
        raise ValueError(
            f"{table.path}: has no {wanted} for its {what}; the columns found are "
            f"{', '.join(table.columns)}."
        )
    return found[0]


def _values(table: _Table, column: str, *, blank: bool = False) -> list[str]:
    values = []
    for line, row in table.rows:
        value = row.get(column)
        where = f"{table.path}, line {line}"
        if not isinstance(value, str):
            what = "nothing" if column not in row else json.dumps(value)
            raise ValueError(f"{where}: expected a text in {column!r}, found {what}.")
        if not (blank or value.strip()):
            raise ValueError(f"{where}: {column!r} is blank.")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{where}: {column!r} holds half of a surrogate pair.")
        values.append(value)
    return values


def list_images(folder: str | PathLike[str]) -> list[pathlib.Path]:
    """The pictures of a folder, as people count: `img2` before `img10`.

    Pictures are known by their endings, in either case; hidden files and what lies in folders
    below are left out.

    Raises:
      ValueError: there is no such folder, or no picture in it.
    """
    folder = files.expanded(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder.")
    found = [
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_ENDINGS and not path.name.startswith(".") and path.is_file()
    ]
    if not found:
        raise ValueError(f"{folder}: holds no pictures ({', '.join(IMAGE_ENDINGS)}).")
    return sorted(found, key=_natural)


def _natural(path: pathlib.Path) -> tuple[list[Any], str]:
    # Splitting at a group alternates: texts at even places, digits at odd ones.
    parts: list[Any] = re.split(r"(\d+)", path.name.casefold())
    parts[1::2] = map(int, parts[1::2])
    return parts, path.name


def pair_images(prompts: Prompts, images: Sequence[pathlib.Path]) -> list[pathlib.Path]:
    """The picture of each prompt: by name where the prompts file names them, else by order.

    Args:
      prompts: n prompts. A name may carry folders, of which only the last part counts.
      images: the pictures of one folder, as `list_images` gives them. Those that the prompts file
        does not name are left out, with a warning.

    Returns:
      n pictures, in the order of the prompts.

    Raises:
      ValueError: a picture is named twice or is not there, or, where order pairs them, the numbers
        differ.
    """
    if prompts.images is None:
        pair_texts(prompts, [path.name for path in images], what="pictures")
        return list(images)
    names = [re.split(r"[/\\]", name.strip())[-1] for name in prompts.images]
    repeated = _repeated(names)
    if repeated:
        raise ValueError(f"{prompts.path}: names pictures twice: {_some(repeated)}.")
    there = {path.name: path for path in images}
    absent = [name for name in names if name not in there]
    if absent:
        raise ValueError(f"{prompts.path}: names pictures that are not there: {_some(absent)}.")
    left = [name for name in there if name not in set(names)]
    if left:
        warnings.warn(
            f"{prompts.path} does not name {len(left):,} of {len(there):,} pictures, which are "
            f"left out: {_some(left)}.",
            stacklevel=2,
        )
    return [there[name] for name in names]


def pair_texts(prompts: Prompts, texts: Sequence[str], *, what: str = "texts") -> None:
    """Refuses outputs that order cannot pair with the prompts.

    Raises:
      ValueError: the numbers differ.
    """
    if len(texts) != len(prompts.texts):
        raise ValueError(
            f"{prompts.path}: holds {len(prompts.texts):,} prompts for {len(texts):,} {what}; the "
            f"first are {prompts.texts[0]!r} and {texts[0]!r}."
        )


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in collections.Counter(names).items() if count > 1]


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
      side: pixels along each side of the square that the encoder takes: the shorter side is
        resampled to it (bicubic) and the middle is cut out. Unset, the picture keeps its size.

    Returns:
      uint8 `[height, width, 3]`, or `[side, side, 3]`.

    Raises:
      ValueError: it cannot be decoded, or Pillow is not installed, with the command that installs
        it.
    """
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError as error:
        raise ValueError(f"decoding pictures needs Pillow: {EXTRA_COMMAND}") from error
    try:
        with Image.open(io.BytesIO(content)) as opened:
            picture = ImageOps.exif_transpose(opened)
            if picture.mode.startswith("I"):  # 16 bits of grey, which Pillow would clip to 8.
                grey = np.asarray(picture).astype(np.int64).clip(0, 65535) // 257
                picture = Image.fromarray(grey.astype(np.uint8))
            if picture.has_transparency_data:
                white = Image.new("RGBA", picture.size, "white")
                picture = Image.alpha_composite(white, picture.convert("RGBA"))
            picture = picture.convert("RGB")
            if side is not None:
                picture = ImageOps.fit(picture, (side, side), Image.Resampling.BICUBIC)
            return np.array(picture)
    except Exception as error:  # Damaged pictures fail in any of the decoders' ways.
        raise ValueError(f"{name}: cannot be decoded as a picture: {error}") from error
