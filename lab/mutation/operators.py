"""Small bugs that a programmer might write, by the operators of mutation testing.

The operators are those of Offutt's sufficient set (A. J. Offutt et al., "An experimental determination of
sufficient mutant operators", TOSEM 1996), on C: other relation, other arithmetic, other bit operation, other
connective, condition turned round, number off by one, statement left out. tree-sitter says where they are, so
that no comment, string, directive or assertion is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_c
from tree_sitter import Language, Node, Parser

OTHER = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"+": "-", "-": "+", "*": "+", "/": "*", "%": "/"},
    **{"&": "|", "|": "&", "^": "|", "<<": ">>", ">>": "<<", "&&": "||", "||": "&&"},
    **{"+=": "-=", "-=": "+=", "|=": "=", "&=": "|=", "^=": "=", "<<=": ">>=", ">>=": "<<=", "*=": "+="},
    **{"++": "--", "--": "++"},
}
WITH_OPERATOR = ("binary_expression", "assignment_expression", "update_expression")
CONDITIONAL = ("if_statement", "while_statement", "conditional_expression")
PASSED_OVER = ("static_assert_declaration", "gnu_asm_expression", "preproc_include", "attribute_specifier")
UNARY = ("!", "~", "-")


@dataclass(frozen=True)
class Mutant:
    """One bug.

    name        FILE FUNCTION: BEFORE -> AFTER, with a number where a function has several alike
    file        from the project's root
    start, end  the bytes that are replaced
    after       by what
    """

    name: str
    file: str
    start: int
    end: int
    after: str

    def planted(self, source: bytes) -> bytes:
        """The file's content with the bug."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants(file: str, source: bytes) -> list[Mutant]:
    """Every mutant of a C file, in its order."""
    tree = Parser(Language(tree_sitter_c.language())).parse(source)
    seen: Counter[str] = Counter()
    found = []
    for function, node, start, end, after in _walk(tree.root_node, ""):
        line = source[: node.start_byte].rfind(b"\n") + 1
        whole = source[line : source.find(b"\n", end)].strip().decode("utf-8", "replace")
        before = source[start:end].decode()
        name = f"{file} {function}: {before} -> {after or 'nothing'} in `{whole.splitlines()[0]}`"
        seen[name] += 1
        number = f" ({seen[name]})" if seen[name] > 1 else ""
        found.append(Mutant(name + number, file, start, end, after))
    return found


def _walk(node: Node, function: str) -> Iterator[tuple[str, Node, int, int, str]]:
    """(function, node, first byte, byte behind the last, replacement) of all below a node, in functions."""
    if node.type in PASSED_OVER or _is_assertion(node):
        return
    if node.type == "function_definition":
        function = _name_of(node)
    if function:
        for start, end, after in _changes(node):
            yield function, node, start, end, after
    for child in node.children:
        yield from _walk(child, function)


def _is_assertion(node: Node) -> bool:
    called = node.child_by_field_name("function") if node.type == "call_expression" else None
    return called is not None and called.text in (b"_Static_assert", b"static_assert")


def _name_of(function: Node) -> str:
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "identifier":
        declarator = declarator.child_by_field_name("declarator")
    return declarator.text.decode() if declarator is not None and declarator.text else "?"


def _changes(node: Node) -> Iterator[tuple[int, int, str]]:
    operator = node.child_by_field_name("operator")
    if node.type in WITH_OPERATOR and operator is not None and operator.type in OTHER:
        yield operator.start_byte, operator.end_byte, OTHER[operator.type]
    if node.type == "unary_expression" and operator is not None and operator.type in UNARY:
        yield operator.start_byte, operator.end_byte, ""
    if node.type == "number_literal":
        yield from _off_by_one(node)
    condition = node.child_by_field_name("condition")
    if node.type in CONDITIONAL and condition is not None:
        text = condition.text.decode() if condition.text else ""
        turned = f"(!{text})" if text.startswith("(") else f"!({text})"
        yield condition.start_byte, condition.end_byte, turned
    if node.type == "expression_statement" and node.named_children:
        yield node.start_byte, node.end_byte, ";"


def _off_by_one(node: Node) -> Iterator[tuple[int, int, str]]:
    text = node.text.decode() if node.text else ""
    digits = text.rstrip("uUlL")
    try:
        value = int(digits, 0)
    except ValueError:
        return  # a float: its bits are the tables', not a programmer's
    yield node.start_byte, node.end_byte, f"{value + 1}{text[len(digits) :]}"
