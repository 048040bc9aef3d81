"""
The part of pydantic that the checker's models use, in Python alone: ``build_wheel.py`` places it as ``pydantic``.

What pydantic refuses of these models is refused here, and what it accepts of a document becomes equal values. Simpler
are: of a union the first member counts that takes a value, for no value has the fields of two of its models; the first
complaint alone is stated; and numbers, text and truth values are strict everywhere, as they are in documents.
"""

import copy
import dataclasses
import inspect
import json
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

Check = Callable[[Any, Any], Any]
"""From a value to what it becomes. Lists and tuples stand for one another unless it is read strictly: True, or
``JSON``, which has no tuples; None leaves that to the model."""
JSON = "json"
SerializerFunctionWrapHandler = GetCoreSchemaHandler = Any
ConfigDict = dict
UNSTATED: Any = type("Unstated", (), {})()


class ValidationError(ValueError):
    """The first thing that is wrong with a value: its kind, in words, and where it is."""

    def __init__(self, kind: str, message: str, value: Any, *place: Any) -> None:
        super().__init__(message)
        self.kind, self.message, self.value, self.place = kind, message, value, list(place)

    def errors(self, **_: Any) -> list[dict[str, Any]]:
        """The complaint as plain values."""
        return [{"type": self.kind, "msg": self.message, "input": self.value, "loc": tuple(self.place)}]


class Strict(NamedTuple):
    """Whether a value has to be of its type."""

    strict: bool = True


class Field(NamedTuple):
    """Limits of a value."""

    gt: Any = None
    ge: Any = None
    lt: Any = None
    le: Any = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    strict: bool | None = None
    description: str = ""


class BeforeValidator(NamedTuple):
    """A function of the value as it is given."""

    function: Callable[[Any], Any]
    json_schema_input_type: Any = None


class AfterValidator(NamedTuple):
    """A function of the value that was checked."""

    function: Callable[[Any], Any]


class Tag(NamedTuple):
    """Name of a member of a union."""

    name: str


class Discriminator(NamedTuple):
    """From a value to the tag of the member that it is."""

    function: Callable[[Any], str]


def _marked(kind: str, mode: str, *names: str) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        getattr(function, "__func__", function).mark = kind, mode, names
        return function

    return decorate


def field_validator(*names: str, mode: str = "after") -> Callable[[Any], Any]:
    """Mark a class method as a check of fields."""
    return _marked("field", mode, *names)


def model_validator(*, mode: str) -> Callable[[Any], Any]:
    """Mark a method as a check of the model, or of its values before."""
    return _marked("model", mode)


def model_serializer(*, mode: str) -> Callable[[Any], Any]:
    """Mark a method as what makes plain values of a model."""
    return _marked("plain", mode)


def _refuse(kind: str, value: Any, expected: str) -> Any:
    raise ValidationError(kind, f"Input should be {expected}", value)


def _refuse_size(kind: str, value: Any, limit: str) -> None:
    ending = "" if limit.endswith(" 1") else "s"
    if isinstance(value, str):
        raise ValidationError(f"string_{kind}", f"String should have {limit} character{ending}", value)
    words = f"{type(value).__name__.title()} should have {limit} item{ending} after validation, not {len(value)}"
    raise ValidationError(kind, words, value)


def _called(function: Callable[[Any], Any], value: Any) -> Any:
    try:
        return function(value)
    except ValidationError:
        raise
    except (ValueError, AssertionError) as error:
        raise ValidationError("value_error", f"Value error, {error}", value) from None


def _placed(check: Check, value: Any, mode: Any, *place: Any) -> Any:
    try:
        return check(value, mode)
    except ValidationError as error:
        error.place[:0] = place
        raise


def _compiled(kind: Any, config: Mapping[str, Any]) -> Check:
    """The check of an annotation in a model of some configuration."""
    kind, stated = _parted(kind)
    strict = next((each.strict for each in stated if isinstance(each, Strict)), config.get("strict", False))
    tagged = next((each for each in stated if isinstance(each, Discriminator)), None)
    check = _of_tags(kind, tagged, config) if tagged else _of_kind(kind, strict, config)
    for each in stated:
        if isinstance(each, AfterValidator):
            check = _followed(check, each.function)
        elif isinstance(each, BeforeValidator):
            check = _preceded(check, each.function)
        elif isinstance(each, Field):
            check = _limited(check, each)
    return check


def _parted(kind: Any) -> tuple[Any, list[Any]]:
    """A type, and what is stated beside it."""
    stated = list[Any]()
    while get_origin(kind) is Annotated:
        stated[:0], kind = kind.__metadata__, kind.__origin__
    return kind, stated


def _followed(check: Check, function: Callable[[Any], Any]) -> Check:
    return lambda value, mode: _called(function, check(value, mode))


def _preceded(check: Check, function: Callable[[Any], Any]) -> Check:
    return lambda value, mode: check(_called(function, value), mode)


def _limited(check: Check, limits: Field) -> Check:
    above, least, below, most, shortest, longest = limits[:6]
    # The end that pydantic's pattern means is that of the text, not of a line in it.
    pattern = re.compile(re.sub(r"\$$", r"\\Z", limits.pattern or ""))

    def limited(given: Any, mode: Any) -> Any:
        value = check(given, mode)
        if value is None:
            return None
        if above is not None and not value > above:
            _refuse("greater_than", given, f"greater than {above}")
        if least is not None and not value >= least:
            _refuse("greater_than_equal", given, f"greater than or equal to {least}")
        if below is not None and not value < below:
            _refuse("less_than", given, f"less than {below}")
        if most is not None and not value <= most:
            _refuse("less_than_equal", given, f"less than or equal to {most}")
        if shortest is not None and len(value) < shortest:
            _refuse_size("too_short", given, f"at least {shortest}")
        if longest is not None and len(value) > longest:
            _refuse_size("too_long", given, f"at most {longest}")
        if limits.pattern is not None and not pattern.search(value):
            raise ValidationError("string_pattern_mismatch", f"String should match pattern '{limits.pattern}'", given)
        return value

    return limited


def _of_kind(kind: Any, strict: bool, config: Mapping[str, Any]) -> Check:
    """The check of a type by itself."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if kind is Any:
        return lambda value, mode: value
    if kind in SCALARS:
        return _of_number(config) if kind is float else _of_scalar(kind)
    if origin is Literal:
        return _of_words(inner)
    if origin in (Union, types.UnionType):
        members = [each for each in inner if each is not type(None)]
        names = [getattr(each, "__name__", str(each)) for each in members] if len(members) > 1 else []
        return _of_union([_compiled(each, config) for each in members], names[:1], len(members) < len(inner))
    if origin is dict:
        return _of_dict(*(_compiled(each, config) for each in inner))
    if origin in (list, tuple):
        several = origin is list or inner[-1] is ...
        return _of_entries(origin, [_compiled(each, config) for each in inner if each is not ...], several, strict)
    if issubclass(kind, BaseModel):
        return lambda value, mode: kind._read_(value, mode)
    return _of_dataclass(kind, kind.__pydantic_config__)


SCALARS = {bool: "boolean", int: "integer", str: "string", float: "number"}


def _of_scalar(kind: Any) -> Check:
    name = "string" if kind is str else kind.__name__

    def scalar(value: Any, mode: Any) -> Any:
        if type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        return _refuse(f"{name}_type", value, f"a valid {SCALARS[kind]}")

    return scalar


def _of_number(config: Mapping[str, Any]) -> Check:
    finite = config.get("allow_inf_nan") is False

    def number(value: Any, mode: Any) -> Any:
        if not isinstance(value, float | int) or isinstance(value, bool):
            _refuse("float_type", value, "a valid number")
        found = float(value)
        if finite and not math.isfinite(found):
            _refuse("finite_number", value, "a finite number")
        return found

    return number


def _of_words(words: tuple[Any, ...]) -> Check:
    *most, last = map(repr, words)
    expected = f"{', '.join(most)} or {last}" if most else last

    def literal(value: Any, mode: Any) -> Any:
        for word in words:
            if word == value:
                return word
        return _refuse("literal_error", value, expected)

    return literal


def _of_union(members: list[Check], first_name: list[str], nullable: bool) -> Check:
    def union(value: Any, mode: Any) -> Any:
        if nullable and value is None:
            return None
        first = None
        for member in members:
            try:
                return member(value, mode)
            except ValidationError as error:
                first = first or error
        assert first is not None
        first.place[:0] = first_name
        raise first

    return union


def _of_tags(kind: Any, tagged: Discriminator, config: Mapping[str, Any]) -> Check:
    members = {
        each.name: _compiled(member, config)
        for member in get_args(kind)
        for each in member.__metadata__
        if isinstance(each, Tag)
    }
    return lambda value, mode: _placed(members[tag := tagged.function(value)], value, mode, tag)


def _of_entries(kind: type, checks: list[Check], several: bool, strict: bool) -> Check:
    name = kind.__name__

    def entries(value: Any, mode: Any) -> Any:
        plain = (kind, list) if mode == JSON else kind if (strict if mode is None else mode) else (list, tuple)
        if not isinstance(value, plain):
            _refuse(f"{name}_type", value, f"a valid {name}")
        if not several and len(value) > len(checks):
            _refuse_size("too_long", value, f"at most {len(checks)}")
        found = list[Any]()
        try:
            for check, each in zip(checks * len(value) if several else checks, value, strict=False):
                found.append(check(each, mode))
        except ValidationError as error:
            error.place[:0] = [len(found)]
            raise
        if not several and len(value) < len(checks):
            raise ValidationError("missing", "Field required", value, len(value))
        return found if kind is list else tuple(found)

    return entries


def _of_dict(keys: Check, values: Check) -> Check:
    def mapping(value: Any, mode: Any) -> Any:
        if not isinstance(value, dict):
            _refuse("dict_type", value, "a valid dictionary")
        return {_placed(keys, key, mode, key, "[key]"): _placed(values, each, mode, key) for key, each in value.items()}

    return mapping


Table = dict[str, tuple[Check, Any]]
"""Check and default of each field."""


def _values(given: Any, mode: Any, table: Table, config: Mapping[str, Any]) -> dict[str, Any]:
    """Values by field, those that are not given by their defaults."""
    found = dict[str, Any]()
    for name, (check, default) in table.items():
        if name in given:
            found[name] = _placed(check, given[name], mode, name)
        elif default is UNSTATED:
            raise ValidationError("missing", "Field required", given, name)
        else:
            found[name] = copy.deepcopy(default) if isinstance(default, list | dict) else default
    if config.get("extra") == "forbid" and (others := [name for name in given if name not in table]):
        raise ValidationError("extra_forbidden", "Extra inputs are not permitted", given[others[0]], others[0])
    return found


def _of_dataclass(kind: Any, config: Mapping[str, Any]) -> Check:
    """A mapping stands for such a section even where its fields are strict."""
    table = Table()
    hints = get_type_hints(kind, include_extras=True)
    for each in dataclasses.fields(kind):
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        table[each.name] = _compiled(hints[each.name], config), UNSTATED if default is dataclasses.MISSING else default

    def section(value: Any, mode: Any) -> Any:
        if not isinstance(value, kind | dict):
            _refuse("dataclass_type", value, f"a dictionary or an instance of {kind.__name__}")
        return kind(**_values(value, mode, table, config)) if isinstance(value, dict) else value

    return section


class FieldInfo(NamedTuple):
    """A field of a model: its type, what is stated beside it, its default, and its whole annotation."""

    annotation: Any
    metadata: list[Any]
    default: Any
    whole: Any


class _Fields:
    """Fields of a model by name, those of its bases first."""

    def __get__(self, made: Any, kind: Any) -> dict[str, FieldInfo]:
        if "_fields_" not in kind.__dict__:
            hints, kind._fields_ = get_type_hints(kind, include_extras=True), {}
            for base in reversed(kind.__mro__):
                for name in inspect.get_annotations(base):
                    if get_origin(hints[name]) is not ClassVar:
                        default = base.__dict__.get(name, UNSTATED)
                        kind._fields_[name] = FieldInfo(*_parted(hints[name]), default, hints[name])
        found: dict[str, FieldInfo] = kind._fields_
        return found


class BaseModel:
    """A model whose values are checked where it is made, and are not changed."""

    __slots__ = ("__dict__", "_given_")
    model_config: ClassVar[dict[str, Any]] = {}
    model_fields = _Fields()
    _ruled_: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        """Settings of a model go on in those that are derived of it."""
        inherited: Any = cls.__base__
        cls.model_config = {**inherited.model_config, **cls.__dict__.get("model_config", {})}

    def __init__(self, **values: Any) -> None:
        made = self._read_(values, None)
        self._filled_(made.__dict__, made._given_)

    def _filled_(self, values: Mapping[str, Any], given: set[str]) -> Any:
        self.__dict__.update(values)
        object.__setattr__(self, "_given_", given)
        return self

    @classmethod
    def _marks_(cls, kind: str, mode: str) -> Iterator[tuple[Any, tuple[str, ...]]]:
        """Methods that are marked, and the fields that they are of."""
        for name in dict.fromkeys(name for base in reversed(cls.__mro__) for name in base.__dict__):
            method = inspect.getattr_static(cls, name)
            mark = getattr(getattr(method, "__func__", method), "mark", ("", "", ()))
            if mark[:2] == (kind, mode):
                yield getattr(cls, name), mark[2]

    @classmethod
    def _rules_(cls) -> Any:
        """Checks before, those of the fields, checks after, and what makes plain values; found once."""
        if "_ruled_" not in cls.__dict__:
            checks = {name: _compiled(each.whole, cls.model_config) for name, each in cls.model_fields.items()}
            for mode, joined in {"after": _followed, "before": _preceded}.items():
                for function, names in cls._marks_("field", mode):
                    checks |= {name: joined(checks[name], function) for name in names}
            table = {name: (checks[name], each.default) for name, each in cls.model_fields.items()}
            kinds = ("model", "before"), ("model", "after"), ("plain", "wrap")
            before, after, own = ([function for function, _ in cls._marks_(*each)] for each in kinds)
            cls._ruled_ = before, table, after, own
        return cls.__dict__["_ruled_"]

    @classmethod
    def _read_(cls, value: Any, mode: Any) -> Any:
        if isinstance(value, cls):
            return value
        before, table, after, _ = cls._rules_()
        for function in before:
            value = _called(function, value)
        if not isinstance(value, dict):
            _refuse("model_type", value, f"a valid dictionary or instance of {cls.__name__}")
        values = _values(value, mode, table, cls.model_config)
        made = cls.__new__(cls)._filled_(values, {name for name in table if name in value})
        for function in after:
            made = _called(function, made)
        return made

    @classmethod
    def model_validate(cls, values: Any, *, strict: bool | None = None) -> Any:
        """The model of some values; a ``ValidationError`` says what is wrong."""
        return cls._read_(values, strict)

    @property
    def model_fields_set(self) -> set[str]:
        """Fields that were given."""
        made: Any = self
        given: set[str] = made._given_
        return given

    def model_copy(self, *, update: Mapping[str, Any]) -> Any:
        """A copy with other values, which are not checked."""
        made = copy.copy(self)
        return made._filled_(update, made.model_fields_set | set(update))

    def model_dump(self, *, mode: str = "python", exclude_unset: bool = False) -> Any:
        """Plain values by field."""

        def plain(model: Any) -> dict[str, Any]:
            left = model.model_fields_set if exclude_unset else model.model_fields
            return {
                name: _plain(getattr(model, name), mode, exclude_unset) for name in model.model_fields if name in left
            }

        own = self._rules_()[3]
        return own[0](self, plain) if own else plain(self)

    def __copy__(self) -> Any:
        """A copy that shares its values."""
        return type(self).__new__(type(self))._filled_(self.__dict__, set(self.model_fields_set))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Fields with their values."""
        return ((name, self.__dict__[name]) for name in self.model_fields)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse a change."""
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def _key_(self) -> tuple[Any, ...]:
        return tuple(value for _, value in self)

    def __eq__(self, other: object) -> bool:
        """Whether type and values are equal."""
        return type(self) is type(other) and isinstance(other, BaseModel) and self._key_() == other._key_()

    def __hash__(self) -> int:
        """Of all values, where each has one."""
        return hash(self._key_())

    def __repr__(self) -> str:
        """Type and values."""
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.model_fields)})"


def _plain(value: Any, mode: str, exclude_unset: bool) -> Any:
    """A value of a model as plain values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode=mode, exclude_unset=exclude_unset)
    if isinstance(value, list | tuple):
        found = [_plain(each, mode, exclude_unset) for each in value]
        return tuple(found) if isinstance(value, tuple) and mode != JSON else found
    if isinstance(value, dict):
        return {key: _plain(each, mode, exclude_unset) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name), mode, exclude_unset) for each in dataclasses.fields(value)}
    return None if mode == JSON and isinstance(value, float) and not math.isfinite(value) else value


class RootModel(BaseModel):
    """A model of one value, ``root``."""

    def __class_getitem__(cls, kind: Any) -> Any:
        """The model of values of a type."""
        return type(cls.__name__, (cls,), {"__annotations__": {"root": kind}, "__module__": __name__})

    @classmethod
    def model_validate(cls, values: Any, *, strict: bool | None = None) -> Any:
        """The model of a value."""
        return cls._read_({"root": values}, strict)


class TypeAdapter:
    """The check of a type that is no model."""

    def __init__(self, kind: Any) -> None:
        self._check = _compiled(kind, {})

    def validate_json(self, text: str) -> Any:
        """The value of a text, read strictly."""
        return self._check(json.loads(text), JSON)
