#!/usr/bin/env python3
"""Writes a Markdown page for each public C++ header, from Doxygen's XML, for the documentation site.

api_pages.py XML_FOLDER PAGES_FOLDER: needs Sphinx, whose C++ domain reads the declarations.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

from sphinx.domains.cpp import DefinitionParser
from sphinx.util.cfamily import DefinitionError

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIRECTIVES = {"class": "class", "struct": "struct", "concept": "concept", "function": "function", "variable": "var",
              "typedef": "type", "enum": "enum"}


class ParserConfig:
    cpp_id_attributes = []
    cpp_paren_attributes = []


def escape(text):
    text = re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", text)
    return re.sub(r"^([-+]|\d+(?=\.))", r"\\\1", text) if re.match(r"[-+]\s", text) else text


def plain(node):
    return re.sub(r"\s+", " ", "".join(node.itertext())).strip() if node is not None else ""


def inline(node):
    """Returns the Markdown of a node with text and inline elements."""
    parts = [escape(node.text or "")]
    for child in node:
        text = plain(child)
        if child.tag == "computeroutput" and text:
            parts.append(f"``{text}``" if "`" in text else f"`{text}`")
        elif child.tag == "ref" and child.get("kindref") == "compound" and re.fullmatch(r"[\w:]+", text):
            parts.append(f"{{cpp:any}}`{text}`")
        elif child.tag == "bold":
            parts.append(f"**{escape(text)}**")
        elif child.tag == "ulink":
            parts.append(f"[{escape(text)}]({child.get('url')})")
        elif child.tag not in ("itemizedlist", "orderedlist", "verbatim", "programlisting"):
            parts.append(escape(text))
        parts.append(escape(child.tail or ""))
    return re.sub(r"\s+", " ", "".join(parts)).strip()


def blocks(node):
    """Returns the lines of a description: its paragraphs, lists and code."""
    lines = []
    for child in node if node is not None else []:
        if child.tag != "para":
            lines += blocks(child)
            continue
        if text := inline(child):
            lines += [text, ""]
        for part in child:
            if part.tag in ("itemizedlist", "orderedlist"):
                lines += ["- " + " ".join(line for line in blocks(item) if line) for item in part] + [""]
            elif part.tag in ("verbatim", "programlisting"):
                code = [plain(line) for line in part] or (part.text or "").splitlines()
                lines += ["```cpp", *code, "```", ""]
    return lines


def description(node):
    brief, details = (blocks(node.find(name)) for name in ("briefdescription", "detaileddescription"))
    if brief and details and not details[0].startswith(("```", "- ")):
        return [f"{brief[0]} {details[0]}", *details[1:]]  # Doxygen's brief is the first sentence of a paragraph
    return brief + details


def template_prefix(node):
    params = node.find("templateparamlist")
    if params is None:
        return ""
    words = []
    for param in params:
        name, value = plain(param.find("declname")), plain(param.find("defval"))
        kind = plain(param.find("type"))
        words.append(f"{kind} {name}".strip() + (f" = {value}" if value else ""))
    return f"template<{', '.join(words)}> "


def unqualified(text, scope):
    """Returns a definition with its name relative to a class: Doxygen writes the full one."""
    return re.sub(re.escape(scope) + r"(< ?[\w, .]+ ?>)?::(?=~?\w+(?: =|$)|operator)", "", text) if scope else text


def signature(node, kind, scope):
    if kind in ("class", "struct"):
        bases = [plain(base) for base in node.findall("basecompoundref") if base.get("prot") == "public"]
        return template_prefix(node) + plain(node.find("compoundname")) + (f" : {', '.join(bases)}" if bases else "")
    if kind == "concept":
        return "template<typename T> " + plain(node.find("compoundname"))
    definition = unqualified(plain(node.find("definition")), scope)
    if kind == "function":
        words = re.sub(r"\s*=\s*0$", " = 0", plain(node.find("argsstring")))
        # Sphinx cannot read lambda expressions.
        words = re.sub(r"= ?\[[^\]]*\] ?(\([^)]*\) ?)?\{[^}]*\}", "= unspecified", words)
        requires = plain(node.find("requiresclause"))
        text = re.sub(r"\b(static|virtual|TORCH_API) ", "", definition) + words
        text = re.sub(r"\boverride\b|\bfinal\b", "", text)
        return template_prefix(node) + (f"requires {requires} " if requires else "") + text
    if kind == "typedef":
        words = definition.removeprefix("using ").removeprefix("typedef ")
        return template_prefix(node) + words.replace("= typedef ", "= ")
    if kind == "enum":
        name = plain(node.find("qualifiedname"))
        return name.removeprefix(scope + "::") if scope else name
    initializer = plain(node.find("initializer"))
    text = definition.removeprefix("static ")
    rest = plain(node.find("argsstring"))
    text = f"auto {plain(node.find('name'))}" if rest.startswith(")") else text + rest  # a pointer to a function
    if not initializer or len(initializer) > 60 or re.search(r"\[[^\]]*\] ?[({]", initializer):
        return text
    return text + " " + (initializer if initializer.startswith("=") else f"= {initializer}")


def is_readable(kind, text):
    try:
        parser = DefinitionParser(text, location="", config=ParserConfig())
        kinds = {"var": "member", "struct": "class", "enum-class": "enum"}
        parser.parse_declaration(kinds.get(kind, kind), kind)
        parser.assert_end()
        return True
    except DefinitionError:
        return False


def directive(kind, text, body, depth):
    """Returns the lines of an object. What Sphinx cannot read is shown as code, without an index entry."""
    name = DIRECTIVES.get(kind, kind)
    if not is_readable(name, text):
        short = re.sub(r" = .*", "", text)
        if not is_readable(name, short):
            return ["```cpp", text, "```", "", *body]
        text = short
    fence = "`" * (3 + depth)
    return [f"{fence}{{cpp:{name}}} {text}", "", *body, fence, ""]


def member_lines(node, scope, depth):
    kind = node.get("kind")
    if kind not in DIRECTIVES or node.get("prot") not in (None, "public", "protected"):
        return []
    body = description(node)
    if kind == "enum":
        for value in node.findall("enumvalue"):
            body += directive("enumerator", plain(value.find("name")), description(value), depth - 1)
    name = "enum-class" if node.get("strong") == "yes" else kind
    return directive(name, signature(node, kind, scope), body, depth) if body else []


def compound_lines(compound):
    kind, scope, body = compound.get("kind"), plain(compound.find("compoundname")), description(compound)
    for node in compound.iter("memberdef"):
        if plain(node.find("qualifiedname")).startswith(scope + "::"):  # not inherited
            body += member_lines(node, scope, 2)
    return directive(kind, signature(compound, kind, scope), body, 3)


def objects_by_header(folder):
    """Returns {header: [(line, lines of Markdown)]}."""
    found = {}
    for path in sorted(folder.glob("*.xml")):
        compound = ElementTree.parse(path).getroot().find("compounddef")
        if compound is None:
            continue
        kind, scope = compound.get("kind"), plain(compound.find("compoundname"))
        if "detail" in scope or compound.get("prot") == "private":
            continue
        if kind in ("class", "struct", "concept"):
            place = compound.find("location")
            entries = [(place, compound_lines(compound))]
        elif kind == "namespace":
            entries = [(node.find("location"), member_lines(node, "", 2)) for node in compound.iter("memberdef")]
        else:
            continue
        for place, lines in entries:
            if lines:
                header = place.get("declfile") or place.get("file")
                found.setdefault(header, []).append((int(place.get("declline") or place.get("line")), lines))
    return found


def including_headers():
    """Returns {header: the public header that includes it}."""
    including = {}
    for path in sorted((ROOT / "rondo").glob("*.h")) + sorted((ROOT / "rondo" / "extend").glob("*.h")):
        for part in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE):
            including.setdefault(part, path.relative_to(ROOT).as_posix())
    return including


def main(xml, pages):
    including = including_headers()
    for header, entries in objects_by_header(pathlib.Path(xml)).items():
        if not (ROOT / header).is_file() or header not in including:
            continue
        path = pathlib.Path(pages, header).with_suffix(".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"# {header}", "", "```cpp", f"#include <{including[header]}>", "```", ""]
        for _, entry in sorted(entries):
            lines += entry
        path.write_text("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
