"""Sphinx extension: pages of the whole repository as one site.

- A link to a file that is not a page leads to `repository_url`, or to a page with the file's text.
- A link to a file that does not exist is a warning with its line.
- The README of a folder is the parent of the folder's pages and of the READMEs below; NAME.md is the parent of NAME/*.md.
- The name of a public header in a code span leads to its reference.
"""
import os
import pathlib
import posixpath
import re

from docutils import nodes
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.matching import patfilter
from sphinx.util.osutil import relative_uri

LOG = logging.getLogger(__name__)
# Pages that list what is in their folders, besides READMEs, and the folder of their children.
PARENTS = {"docs/api": "reference/cpp"}


def children(docname, pages):
    """Returns the pages of a README's folder, and the READMEs below that have no README between."""
    folder = posixpath.dirname(docname)
    found = [page for page in pages if posixpath.dirname(page) == folder and page != docname]
    readmes = [page for page in pages if page.startswith(folder + "/") and page.endswith("/README") and page != docname]
    for readme in readmes:
        above = posixpath.dirname(posixpath.dirname(readme))
        while above != folder and f"{above}/README" not in pages:
            above = posixpath.dirname(above)
        if above == folder:
            found.append(readme)
    return sorted(found)


def without_empty_patterns(text, pages):
    """Returns the page with empty lines for the patterns of tables of contents that match no page."""
    def entry(match):
        pattern = posixpath.normpath(posixpath.join("/docs", match[0])).removeprefix("/")
        return match[0] if patfilter(pages, pattern) else ""

    return re.sub(r"^[\w/*\[\]-]*[*\[][\w/*\[\]-]*$", entry, text, flags=re.MULTILINE)


def add_toctree(app, docname, source):
    pages = app.env.found_docs
    if docname == app.config.root_doc:
        source[0] = without_empty_patterns(source[0], pages)
        return
    if docname in PARENTS:
        below = sorted(page for page in pages if page.startswith(PARENTS[docname] + "/"))
    elif docname == "docs/README":
        return
    elif docname.endswith("/README"):
        below = children(docname, pages)
    else:
        below = sorted(page for page in pages if posixpath.dirname(page) == docname)
    if below:
        entries = "\n".join(f"/{page}" for page in below)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{entries}\n```\n"


def line_of(app, docname, node):
    """Returns the line of a link: nodes in tables and lists only know where their block begins."""
    begin = node.line or node.parent.line or 1
    lines = pathlib.Path(app.env.doc2path(docname)).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines[begin - 1:], begin):
        if f"]({node['reftarget']}" in line:
            return number
    return begin


def page_link(docname, target, content):
    uri = relative_uri(f"{docname}.html", f"{target}.html")
    return nodes.reference("", "", *content, refuri=uri, internal=True)


def link_to_file(app, docname, node):
    target, _, line = node["reftarget"].partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(docname), target))
    content = [child.deepcopy() for child in node.children]
    full = pathlib.Path(app.confdir).parent / path
    if path.startswith("..") or not full.exists():
        LOG.warning("dead link: there is no %s", node["reftarget"], location=(docname, line_of(app, docname, node)))
        return nodes.inline("", "", *content)
    if app.config.repository_url:
        uri = app.config.repository_url + path + (f"#{line}" if line else "")
        return nodes.reference("", "", *content, refuri=uri, internal=False)
    if full.is_dir():
        LOG.warning("link to the folder %s: link to its README.md, or to one of its files", node["reftarget"],
                    location=(docname, line_of(app, docname, node)))
        return nodes.inline("", "", *content)
    app.env.linked_files = getattr(app.env, "linked_files", set()) | {path}
    return page_link(docname, f"files/{path}", content)


def link_files(app, doctree):
    docname = app.env.docname
    if docname == "docs/README":
        # The list of pages for readers of the repository; the site has its tables of contents.
        app.env.metadata[docname]["orphan"] = True
    for node in list(doctree.findall(addnodes.pending_xref)):
        target = node["reftarget"]
        if node["reftype"] == "myst" and not node.get("refdomain") and not target.startswith("#"):
            node.replace_self(link_to_file(app, docname, node))
    for node in list(doctree.findall(nodes.literal)):
        page = f"reference/cpp/{node.astext()}".removesuffix(".h")
        linked = isinstance(node.parent, (nodes.reference, addnodes.pending_xref))
        if node.astext().endswith(".h") and page in app.env.found_docs and page != docname and not linked:
            node.replace_self(page_link(docname, page, [node.deepcopy()]))


def file_pages(app):
    for path in sorted(getattr(app.env, "linked_files", ())):
        text = (pathlib.Path(app.confdir).parent / path).read_text(encoding="utf-8")
        try:
            language = get_lexer_for_filename(path).aliases[0]
        except (ClassNotFound, IndexError):
            language = "text"
        name = os.path.basename(path)
        code = app.builder.highlighter.highlight_block(text, language, force=True)
        yield f"files/{path}", {"title": name, "body": f"<h1>{name}</h1><p><code>{path}</code></p>{code}"}, "page.html"


def collapse_navigation(app, pagename, templatename, context, doctree):
    """Expands only the branch of the current page: whole trees would be most of the site's size."""
    toctree = context.get("toctree")
    if toctree:
        # A heading of a screen reader needs a level.
        context["toctree"] = lambda **options: toctree(**options | {"collapse": True}).replace(
            'role="heading"', 'role="heading" aria-level="2"')


def setup(app):
    app.add_config_value("repository_url", "", "html")
    app.connect("source-read", add_toctree)
    app.connect("doctree-read", link_files)
    app.connect("html-collect-pages", file_pages)
    app.connect("html-page-context", collapse_navigation, priority=100)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
