#!/usr/bin/env python3
"""Writes docs/c-api-reference.md from the C headers and docs/python-reader.md from lockstep_reader.py: reference.py [DIR].

`make docs` runs it. DIR is docs/ unless given.
"""
import ast
import pathlib
import re
import sys
import textwrap

TREE = pathlib.Path(__file__).resolve().parent.parent


def prose(text):
    """Markdown of a comment: identifiers as code, wrapped; a comment with columns stays as it is."""
    if re.search(r"^\S+ {3,}\S|^ {2,}\S", text, re.M):
        return "```text\n" + text + "\n```"
    text = re.sub(r"`?\b((?:lsem|lsnet|lsfit|LSEM|LSNET|LSFIT|n)_\w+(?:\(\))?)`?", r"`\1`", " ".join(text.split()))
    text = re.sub(r"(?<!`)(?<!\w)([_*]\w+)", r"`\1`", text)
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def comment(lines):
    """The text of a C comment, given with its marks."""
    text = re.sub(r"\s*\*/$", "", "\n".join(lines).strip())
    return "\n".join(re.sub(r"^(/\*| \*) ?", "", line) for line in text.split("\n")).strip()


def c_reference():
    """The page of the C headers: blocks separated by blank lines, each a comment and what it describes."""
    out = ["# Functions of liblockstep", "",
           "Made from `lockstep.h` and `lockstep_train.h` in `include/lockstep` by `make docs`. The pages on "
           "[liblockstep](c-api.md)", "and on [training in a model](training-in-a-model.md) show how to combine them.",
           ""]
    headers = [(TREE / "include/lockstep" / name).read_text() for name in ("lockstep.h", "lockstep_train.h")]
    title = "/* ---- Training: liblockstep_train ---- */"
    for block in re.split(r"\n\n+", f"\n\n{title}\n\n".join(headers)):
        heading = re.fullmatch(r"/\* -{4} (.*?) -+ \*/", block.strip())
        if heading:
            out += ["## " + heading.group(1), ""]
            continue
        for part in re.split(r"\n(?=/\*)", block.strip()):
            note = re.match(r"/\*.*?\*/", part, re.S)
            code = part[note.end():] if note else part
            code = "\n".join(line for line in code.strip().replace("LSEM_API ", "").split("\n")
                             if line and not re.match(r'#(?!define \w+ \d)|\}$|extern "C" \{$', line))
            if note:
                out += [prose(comment(note.group().split("\n"))), ""]
            if code:
                out += ["```c", code, "```", ""]
    return "\n".join(out)


def python_reference():
    """The page of lockstep_reader.py: the public classes and functions with their docstrings."""
    module = ast.parse((TREE / "src/capi/lockstep_reader.py").read_text())
    names = next(ast.literal_eval(node.value) for node in module.body
                 if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    summary, _, rest = ast.get_docstring(module).partition("\n")
    example, _, rest = rest.strip("\n").partition("\nA missing")
    out = ["# lockstep_reader.py", "", "Made from `src/capi/lockstep_reader.py` by `make docs`.", "", summary, "",
           "```python", textwrap.dedent(example).rstrip(), "```", "", text_of("A missing" + rest), ""]
    for node in module.body:
        if getattr(node, "name", None) not in names:
            continue
        if isinstance(node, ast.FunctionDef):
            out += entry(node, "## ")
            continue
        out += [f"## {node.name}", "", text_of(ast.get_docstring(node)), ""]
        for method in node.body:
            public = isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
            if public or getattr(method, "name", "") == "__init__":
                out += entry(method, "### ", node.name)
    return "\n".join(out)


def text_of(docstring):
    return "\n\n".join(textwrap.fill(" ".join(p.split()), 120, break_long_words=False, break_on_hyphens=False)
                       for p in docstring.split("\n\n"))


def entry(node, heading, owner=""):
    """Heading, signature and docstring of a function, or of a method of the class `owner`."""
    name = node.name.replace("__init__", owner)
    arguments = ast.unparse(node.args).replace("self, ", "").replace("self", "")
    result = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    is_property = any(ast.unparse(d) == "property" for d in node.decorator_list)
    lines = [heading + name, "", "```python", name + ("" if is_property else f"({arguments})") + result, "```", ""]
    text = ast.get_docstring(node)
    return lines + ([text_of(text), ""] if text else [])


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else TREE / "docs"
    (folder / "c-api-reference.md").write_text(c_reference())
    (folder / "python-reader.md").write_text(python_reference())
