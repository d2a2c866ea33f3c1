"""Protobuf messages: descriptors from descriptor sets, generated classes and registries, and messages as Arrow types.

Descriptors are loaded into separate pools, never into Protobuf's default pool: two topics may have different
messages with the same name.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import need, pyarrow
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

#: Nesting beyond this is refused, as are messages that contain themselves: they have no column type.
_DEPTH_MAX: Final = 32
#: Imports that the library has, if a descriptor set lacks them.
_LIBRARY: Final = "google/protobuf/"
_LIBRARY_FILES: Final = frozenset(
    f"{_LIBRARY}{stem}.proto"
    for stem in (
        *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context"),
        *("struct", "timestamp", "type", "wrappers"),
    )
)
TIMESTAMP: Final = "google.protobuf.Timestamp"


def protobuf(module: str = "google.protobuf") -> Any:
    """Return a module of Protobuf. Raises `ConfigError` if it is not installed."""
    return need(module, "protobuf", "bodies as Protobuf")


def descriptors_of(kind: Any) -> tuple[bytes, str] | None:
    """Return the descriptor set and the full name of a generated class or a descriptor, or `None` for another
    object."""
    descriptor = getattr(kind, "DESCRIPTOR", kind)
    if not hasattr(descriptor, "full_name") or not hasattr(descriptor, "fields_by_name"):
        return None
    files: dict[str, bytes] = {}

    def add(file: Any) -> None:
        if file.name not in files:
            for each in file.dependencies:
                add(each)
            files[file.name] = file.serialized_pb

    add(descriptor.file)
    made = protobuf("google.protobuf.descriptor_pb2").FileDescriptorSet()
    for data in files.values():
        made.file.add().ParseFromString(data)
    return made.SerializeToString(), str(descriptor.full_name)


def descriptor_set(files: Mapping[str, bytes]) -> bytes:
    """Return serialized files as a set, each under the name by which others import it. Raises `ConfigError`."""
    library = protobuf("google.protobuf.descriptor_pb2")
    made = library.FileDescriptorSet()
    for name, data in files.items():
        try:
            made.file.add().ParseFromString(data)
        except protobuf("google.protobuf.message").DecodeError as error:
            raise ConfigError(f"the descriptor of {name} is damaged: {error}") from None
        made.file[-1].name = name
    return bytes(made.SerializeToString())


def only_message(descriptors: bytes) -> str:
    """Return the name of the only message that the last file of a set declares. Raises `ConfigError` if there are
    more."""
    files = _files(descriptors)
    last = files[next(reversed(files))]
    prefix = f"{last.package}." if last.package else ""
    names = [prefix + message.name for message in last.message_type]
    if len(names) == 1:
        return str(names[0])
    raise ConfigError(
        f"the descriptor set declares {', '.join(names[:10]) or 'no message'}"
        + (f" and {len(names) - 10} more" if len(names) > 10 else ""),
        hint="name the message of the bodies",
    )


@lru_cache(maxsize=64)
def message_class(descriptors: bytes, name: str) -> Any:
    """Return the class of a message in a descriptor set. Raises `ConfigError`."""
    pool = _pool(descriptors)
    try:
        found = pool.FindMessageTypeByName(name)
    except KeyError:
        known = sorted(
            (f"{file.package}." if file.package else "") + message.name
            for file in _files(descriptors).values()
            if not file.name.startswith(_LIBRARY)
            for message in file.message_type
        )
        raise ConfigError(
            f"the descriptor set has no message {name!r}; it has {', '.join(known[:20]) or 'none'}"
        ) from None
    return protobuf("google.protobuf.message_factory").GetMessageClass(found)


@lru_cache(maxsize=256)
def message_by_indexes(descriptors: bytes, file: str, indexes: tuple[int, ...]) -> Any:
    """Return the class at indexes of a file: the message, the message nested in it, and so on. Raises `ValueError`."""
    level = _files(descriptors)[file].message_type
    names = [_files(descriptors)[file].package] if _files(descriptors)[file].package else []
    for index in indexes:
        if not 0 <= index < len(level):
            raise ValueError(f"its schema has no message {list(indexes)}")
        names.append(level[index].name)
        level = level[index].nested_type
    return message_class(descriptors, ".".join(names))


def indexes_of(kind: Any) -> tuple[int, ...]:
    """Return the indexes of a class in its file."""
    descriptor, found = kind.DESCRIPTOR, []
    while (parent := descriptor.containing_type) is not None:
        found.append([each.name for each in parent.nested_types].index(descriptor.name))
        descriptor = parent
    found.append(list(descriptor.file.message_types_by_name).index(descriptor.name))
    return tuple(reversed(found))


@lru_cache(maxsize=64)
def _files(descriptors: bytes) -> dict[str, Any]:
    made = protobuf("google.protobuf.descriptor_pb2").FileDescriptorSet()
    try:
        made.ParseFromString(descriptors)
    except protobuf("google.protobuf.message").DecodeError as error:
        raise ConfigError(
            f"the descriptor set is damaged: {error}",
            hint="write it with protoc --include_imports --descriptor_set_out=FILE",
        ) from None
    if not made.file:
        raise ConfigError("the descriptor set is empty")
    return {file.name: file for file in made.file}


@lru_cache(maxsize=64)
def _pool(descriptors: bytes) -> Any:
    pool = protobuf("google.protobuf.descriptor_pool").DescriptorPool()
    files, added = _files(descriptors), set[str]()

    def add(name: str, importer: str) -> None:
        if name in added:
            return
        added.add(name)
        data = files[name].SerializeToString() if name in files else _from_library(name, importer)
        for each in imports(name, data):
            add(each, name)
        try:
            pool.AddSerializedFile(data)
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigError(f"the descriptor of {name} is not valid: {error}") from None

    def imports(name: str, data: bytes) -> Iterable[str]:
        if name in files:
            return list(files[name].dependency)
        library = protobuf("google.protobuf.descriptor_pb2").FileDescriptorProto()
        library.ParseFromString(data)
        return list(library.dependency)

    try:
        for name in files:
            add(name, "")
    except RecursionError:
        raise ConfigError("the descriptor set has too many levels of imports") from None
    return pool


def _from_library(name: str, importer: str) -> bytes:
    if name not in _LIBRARY_FILES:
        raise ConfigError(
            f"the descriptor set lacks {name}, which {importer} imports",
            hint="write it with protoc --include_imports",
        )
    module = protobuf(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    return bytes(module.DESCRIPTOR.serialized_pb)


def arrow_type(descriptor: Any) -> "pa.StructType":
    """Return the type of a column of messages. Raises `ConfigError` for a message that contains itself."""
    return _struct(descriptor, ())


def _struct(descriptor: Any, within: tuple[str, ...]) -> "pa.StructType":
    pa = pyarrow("bodies as Protobuf")
    if descriptor.full_name in within:
        raise ConfigError(
            f"message {descriptor.full_name} contains itself, which no column can",
            hint="give the fields to read as DDL",
        )
    if len(within) >= _DEPTH_MAX:
        raise ConfigError(f"message {within[0]} has more than {_DEPTH_MAX} levels")
    within = (*within, descriptor.full_name)
    # A structure without fields is not a type of Spark, nor of Parquet.
    fields = [each for each in descriptor.fields if not _is_empty(each)]
    return pa.struct([pa.field(each.name, field_type(each, within)) for each in fields])


def _is_empty(field: Any) -> bool:
    return field.message_type is not None and not field.message_type.fields


def is_map(field: Any) -> bool:
    """Return whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def is_repeated(field: Any) -> bool:
    """Return whether a field is a list. Releases of Protobuf before 6.31 have only its label."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def field_type(field: Any, within: tuple[str, ...] = ()) -> "pa.DataType":
    """Return the type of a field's column."""
    pa = pyarrow("bodies as Protobuf")
    if is_map(field):
        return pa.map_(pa.string(), single_type(field.message_type.fields_by_name["value"], within))
    if is_repeated(field):
        return pa.list_(pa.field("element", single_type(field, within)))
    return single_type(field, within)


def single_type(field: Any, within: tuple[str, ...] = ()) -> "pa.DataType":
    """Return the type of one value of a field."""
    pa = pyarrow("bodies as Protobuf")
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return pa.timestamp("us", "UTC")
        return _struct(field.message_type, within)
    of = protobuf("google.protobuf.descriptor").FieldDescriptor
    types = {
        of.CPPTYPE_INT32: pa.int32(),
        of.CPPTYPE_INT64: pa.int64(),
        of.CPPTYPE_UINT32: pa.int64(),
        of.CPPTYPE_UINT64: pa.decimal128(20, 0),
        of.CPPTYPE_DOUBLE: pa.float64(),
        of.CPPTYPE_FLOAT: pa.float32(),
        of.CPPTYPE_BOOL: pa.bool_(),
        of.CPPTYPE_ENUM: pa.string(),
    }
    if field.cpp_type in types:
        return types[field.cpp_type]
    return pa.binary() if field.type == of.TYPE_BYTES else pa.string()
