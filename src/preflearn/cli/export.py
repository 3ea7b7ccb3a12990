"""``preflearn export``: a saved model for programs that do not run Python."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .output import collected_warnings, tell_notes, typed
from .settings import QuietOption


class Target(StrEnum):
    """Where a model can go."""

    onnx = "onnx"
    solr = "solr"
    elasticsearch = "elasticsearch"


class NumberType(StrEnum):
    """Type of the numbers that an ONNX model takes."""

    float32 = "float32"
    float64 = "float64"


# Long: most of it declares the options of the command.
def export(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    to: Annotated[Target, typer.Option("--to", help="Format.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write; for Solr and Elasticsearch the model, with its features in a second file "
            "(model.json, model.features.json).",
        ),
    ],  # fmt: skip
    name: Annotated[
        str | None, typer.Option("--name", help="Name in the search engine. Default: name of FILE.")
    ] = None,
    one_query: Annotated[
        bool,
        typer.Option("--one-query", help="ONNX: treat all rows of a call as the items of one query."),
    ] = False,
    dtype: Annotated[
        NumberType | None, typer.Option("--dtype", help="ONNX: type of the features. Default: float64.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="DATA",
            help="ONNX: run the exported model on a file like the training data, and refuse it where it orders a query "
            "differently from `preflearn predict`. Needs onnxruntime.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing file that is not such an export.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Write a model as ONNX, or as definitions for Solr or Elasticsearch."""
    _refuse_ignored(to, {"--one-query": one_query, "--dtype": dtype, "--check": check}, {"--name": name})
    features_file = None if to is Target.onnx else output.with_suffix(".features.json")
    for path in filter(None, (output, features_file)):
        _check_output(path, model, to, force)

    from ..tables.models.files import load_model, model_info

    found = load_model(model)
    names = _feature_names(found, dict(model_info(model)["metadata"]))
    with collected_warnings() as warned:
        if to is Target.onnx:
            _refuse_texts(model)
            _refuse_what_stays(found, model, typed(context), one_query)
            rows = {} if check is None else _rows_to_check(model, check)
            options = {"one_query": one_query, "dtype": str(dtype or NumberType.float64), **rows}
            written = _write_onnx(found, output, names, options)
        else:
            assert features_file is not None
            written = _write_definitions(found, output, features_file, names, to, name or output.stem)
    if not quiet:
        tell_notes(warned)
        for line in written:
            typer.echo(line)


def _refuse_ignored(to: Target, for_onnx: dict[str, Any], for_engines: dict[str, Any]) -> None:
    unused = for_engines if to is Target.onnx else for_onnx
    for option, value in unused.items():
        if value:
            raise ValueError(f"{option} would be ignored by --to {to}: leave it out.")


def _check_output(path: Path, model: Path, to: Target, force: bool) -> None:
    """Refuse before any work what could not be written, or would destroy what is not ours."""
    from ..tables.atomic import require_writable

    if path.resolve() == model.resolve():
        raise ValueError(f"{path} is the model itself: give another name to write to.")
    require_writable(path)
    if path.is_file() and not force and not _RECOGNISED[to](path.read_bytes()):
        raise ValueError(
            f"{path} exists and is not an export for {to}: give another name, or --force to replace it."
        )


def _is_our_onnx(content: bytes) -> bool:
    from ..tables.models.onnx import PRODUCER

    try:
        import onnx

        return onnx.ModelProto.FromString(content).producer_name == PRODUCER
    except Exception:  # another protobuf message, or the extra is missing, which is reported later
        return False


def _is_definition(marks: tuple[str, ...]) -> Callable[[bytes], bool]:
    """JSON whose outermost keys are those of a definition."""

    def recognised(content: bytes) -> bool:
        try:
            found = json.loads(content)
        except ValueError:
            return False
        first = found[0] if isinstance(found, list) and found else found
        return isinstance(first, dict) and any(set(mark.split()) <= set(first) for mark in marks)

    return recognised


_RECOGNISED: dict[Target, Callable[[bytes], bool]] = {
    Target.onnx: _is_our_onnx,
    Target.solr: _is_definition(("store name class params",)),
    Target.elasticsearch: _is_definition(("featureset", "model")),
}


def _feature_names(found: Any, metadata: dict[str, Any]) -> list[str] | None:
    """The names that `preflearn train` remembers, where the model itself has none."""
    names = (metadata.get("reading") or {}).get("features")
    n_features = getattr(found, "n_features_in_", None)
    return [str(name) for name in names] if names is not None and len(names) == n_features else None


def _refuse_texts(model: Path) -> None:
    """A graph of texts needs examples of them, which no file on the command line gives."""
    from ..tables.models.files import model_info

    if (model_info(model)["metadata"].get("reading") or {}).get("kind") == "texts":
        raise ValueError(
            f"{model.name} takes texts, which --to onnx cannot export: use preflearn.io.to_onnx with example=texts."
        )


def _refuse_what_stays(found: Any, model: Path, command: str, one_query: bool) -> None:
    """Everything that is in the way of ONNX in one message, with the commands that lead there."""
    from ..tables.encoding.columns import free_texts
    from ..tables.encoding.table import table_encoder
    from ..tables.models.files import model_info
    from ..tables.models.onnx import looks_at_query

    encoder = table_encoder(found)
    texts = [] if encoder is None else free_texts(encoder.encoders_)
    alone = bool(looks_at_query(found)) and not one_query
    if not texts and not alone:
        return
    reasons, commands = [], [f"{command} --one-query" if alone else command]
    if texts:
        commands.insert(0, _training_without(texts, model, dict(model_info(model)["metadata"])))
        what = f"column {texts[0]!r} is" if len(texts) == 1 else f"columns {', '.join(map(repr, texts))} are"
        reasons.append(f"{what} free text, for which ONNX has no operator")
    if alone:
        reasons.append(
            "it looks at the other items of the query, and an exported model is called with rows alone: with "
            "--one-query the rows of a call are one query"
        )
    how = "Run, with the other options of its training, " if texts else "Run "
    or_serve = f". preflearn serve {model} takes texts as they are" if texts else ""
    raise ValueError(
        f"{model.name} cannot be exported to ONNX like this: {'; and '.join(reasons)}. {how}"
        f"{' && '.join(commands)}{or_serve}"
    )


def _training_without(columns: list[str], model: Path, metadata: dict[str, Any]) -> str:
    """The command that trained a model, without some columns."""
    roles = metadata.get("reading") or {}
    words = [str(one["name"]) for one in metadata.get("files", ())] or ["DATA"]
    for role in ("target", "query"):
        words += [f"--{role}", roles[role]] if roles.get(role) is not None else []
    return shlex.join(["preflearn", "train", *words, "--drop", ",".join(columns), "-o", str(model)])


def _rows_to_check(model: Path, data: Path) -> dict[str, Any]:
    """Rows as the model predicts them, and their queries."""
    from . import files, model_files

    rows = model_files.read_for(
        model, model_files.load(model), [data], files.Reading.from_options(), with_target=False
    )
    return {"check": rows.X, "qid": rows.qid}


def _write_onnx(found: Any, output: Path, names: list[str] | None, options: dict[str, Any]) -> list[str]:
    from ..tables.atomic import write_whole
    from ..tables.models.onnx import to_onnx

    exported = to_onnx(found, feature_names=names, **options)
    write_whole(output, exported.SerializeToString())
    inputs = _inputs(found, exported)
    if len(inputs) == 1 and names:
        inputs = {how: [f"{len(names)} features"] for how in inputs}
    takes = ", ".join(f"{', '.join(some)} ({how})" for how, some in inputs.items())
    written = f"Wrote {output}: takes {takes}, gives {exported.graph.output[0].name}."
    checked = ["It orders the rows of the check as predict does."] if "check" in options else []
    return [written, *checked]


def _inputs(found: Any, exported: Any) -> dict[str, list[str]]:
    """Names of the inputs by what is to be given for them."""
    import onnx

    from ..tables.encoding.table import table_encoder

    encoder = table_encoder(found)
    dates = set() if encoder is None else {name for name, kind in encoder.kinds_.items() if kind == "date"}
    types: dict[str, list[str]] = {}
    for one in exported.graph.input:
        kind = onnx.TensorProto.DataType.Name(one.type.tensor_type.elem_type)
        how = {"STRING": "text", "FLOAT": "float32", "DOUBLE": "float64"}[kind]
        types.setdefault(f"seconds since 1970, {how}" if one.name in dates else how, []).append(one.name)
    return types


def _write_definitions(
    found: Any, output: Path, features_file: Path, names: list[str] | None, to: Target, name: str
) -> list[str]:
    from ..tables.atomic import write_whole
    from ..tables.models.search_engines import to_elasticsearch, to_solr

    convert = to_solr if to is Target.solr else to_elasticsearch
    definitions = convert(found, name=name, feature_names=names)
    for path, content in ((features_file, definitions.features), (output, definitions.model)):
        write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    feature_address, model_address = _ADDRESSES[to]
    return [
        f"Wrote {features_file}: the features, to upload first to {feature_address.format(name=name)}",
        f"Wrote {output}: the model, to upload to {model_address.format(name=name)}",
        "The intercept is left out: it adds the same to every item.",
    ]


_ADDRESSES = {
    Target.solr: ("COLLECTION/schema/feature-store", "COLLECTION/schema/model-store"),
    Target.elasticsearch: ("_ltr/_featureset/{name}", "_ltr/_featureset/{name}/_createmodel"),
}
