"""The examples in the stub, where the native classes have their documentation, hold."""

import ast
import doctest
from pathlib import Path

import rmqpy

STUB = Path(__file__).parents[2] / "python" / "rmqpy" / "_native.pyi"


def test_the_examples_of_the_native_classes_hold() -> None:
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    names = {name: getattr(rmqpy, name) for name in ("Message", "MessageQueue")}
    for node in ast.walk(ast.parse(STUB.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            runner.run(parser.get_doctest(text, dict(names), node.name, str(STUB), node.lineno))
    assert runner.tries > 1
    assert runner.failures == 0
