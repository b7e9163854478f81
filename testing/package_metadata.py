"""The project URLs of the package oversold-testing.

They are derived from the variables of the GitHub workflow that builds the release. A build
elsewhere does not know the repository, so its metadata has no project URLs.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PluginMetadata(MetadataHookInterface):
    """A build hook of hatchling, which calls update() to set the project's URLs."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the URLs of the project if the repository is known.

        A build from an sdist, which contains PKG-INFO, already has them.
        """
        repository = os.environ.get("GITHUB_REPOSITORY", "")
        if not repository or (Path(self.root) / "PKG-INFO").exists():
            return
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        ref = os.environ.get("GITHUB_REF_NAME", "HEAD")
        home = f"{server}/{repository}"
        metadata["urls"] = {
            "Homepage": home,
            "Documentation": f"{home}/blob/{ref}/testing/README.md",
            "Changelog": f"{home}/blob/{ref}/CHANGELOG.md",
            "Issues": f"{home}/issues",
        }
