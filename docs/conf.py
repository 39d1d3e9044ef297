"""Settings of the documentation site; scripts/docs.sh builds it.

Sphinx reads copies of the repository's Markdown files in build/docs-source, which have the same relative paths.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs" / "site"))

project = "rondo"
author = "the rondo authors"
version = re.search(r'#define RONDO_VERSION "(.*)"', (ROOT / "rondo" / "base" / "version.h").read_text())[1]
release = version

extensions = ["myst_parser", "repository_pages"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"

# Anchors of headings are those of code hosts.
myst_heading_anchors = 6
highlight_language = "text"

# Root of the repository's files on a code host ("https://HOST/PROJECT/blob/main/"). While it is empty, the site has a
# page for each linked source file.
repository_url = ""

html_theme = "furo"
html_title = f"rondo {version}"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
templates_path = ["site/templates"]
# The site's root leads to root_doc.
html_additional_pages = {"index": "root.html"}
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
toc_object_entries_show_parents = "hide"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5394", "color-brand-content": "#0b5394",
                            "color-brand-visited": "#5b3f9e"},
    "dark_css_variables": {"color-brand-primary": "#8ab8ff", "color-brand-content": "#8ab8ff",
                           "color-brand-visited": "#c3a6ff"},
}
