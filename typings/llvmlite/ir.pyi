"""The types and values that the kernel room names; a builder's methods are not told apart."""

from collections.abc import Callable
from typing import Any

class Type:
    def __call__(self, constant: object) -> Constant: ...
    def as_pointer(self, addrspace: int = ...) -> PointerType: ...

class VoidType(Type): ...
class HalfType(Type): ...
class FloatType(Type): ...
class DoubleType(Type): ...

class IntType(Type):
    width: int
    def __init__(self, bits: int) -> None: ...

class PointerType(Type):
    def __init__(self, pointee: Type = ..., addrspace: int = ...) -> None: ...

class VectorType(Type):
    element: Any
    count: int
    def __init__(self, elementtype: Type, count: int) -> None: ...

class ArrayType(Type):
    element: Any
    count: int
    def __init__(self, element: Type, count: int) -> None: ...

class FunctionType(Type):
    def __init__(self, return_type: Type, args: object, var_arg: bool = ...) -> None: ...

class Value:
    type: Any
    name: str

class Constant(Value):
    def __init__(self, typ: Type, constant: object) -> None: ...

Undefined: Any

class Module:
    globals: dict[str, Any]
    def __getattr__(self, name: str) -> Any: ...

class Block(Value):
    def __getattr__(self, name: str) -> Any: ...

class Function(Value):
    args: tuple[Any, ...]
    attributes: Any
    linkage: str
    def __init__(self, module: Module, ftype: FunctionType, name: str) -> None: ...
    def append_basic_block(self, name: str = ...) -> Block: ...

class IRBuilder:
    module: Any
    function: Any
    block: Any
    def __init__(self, block: Block | None = ...) -> None: ...
    def __getattr__(self, name: str) -> Callable[..., Any]: ...
