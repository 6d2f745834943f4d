"""What mkdocs needs to build pages that are written for GitHub: files beside docs/, and links to them."""

import glob
import os
import re

from mkdocs.structure.files import File

REPOSITORY = "https://github.com/kcpctl/kcpctl/tree/main/"
BESIDE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "tools/release/kubectl_complete-kcpctl"]


def on_files(files, config):
    root = os.path.join(os.path.dirname(config.config_file_path), "..", "..")
    for name in BESIDE + sorted(glob.glob("examples/*.yaml", root_dir=root)):
        files.append(File(name, root, config.site_dir, config.use_directory_urls))
    files.append(File("site.css", os.path.dirname(__file__), config.site_dir, False))
    files.remove(files.get_file_from_path("embed.go"))
    return files


def on_page_markdown(markdown, page, **_):
    # The comments above shell blocks are for tests.
    markdown = re.sub(r"(?m)^ *<!-- (not )?run: .* -->\n", "", markdown)
    markdown = markdown.replace("](examples)", "](" + REPOSITORY + "examples)")
    if page.file.src_uri in BESIDE:
        return markdown.replace("](docs/", "](")
    return re.sub(r"\]\(\.\./([^)]*\.(md|yaml)[#)])", r"](\1", markdown)


def on_post_build(config):
    # Its links begin with /, but the site of a version is in a directory.
    os.remove(os.path.join(config.site_dir, "404.html"))
