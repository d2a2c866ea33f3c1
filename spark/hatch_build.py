"""Metadata that both distributions share: the version, which `rust/Cargo.toml` states, and the addresses."""

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class OneVersion(MetadataHookInterface):
    """Pins rmqpy to the connector's version and copies rmqpy's addresses. An sdist carries both in its PKG-INFO."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set version, dependencies and addresses, unless PKG-INFO has set them."""
        if "version" in metadata:
            return
        clone = Path(self.root).parent
        version = tomllib.loads((clone / "rust" / "Cargo.toml").read_text("utf-8"))["package"]["version"]
        metadata["version"] = version
        metadata["dependencies"] = [f"rmqpy=={version}", *self.config["dependencies"]]
        metadata["urls"] = tomllib.loads((clone / "pyproject.toml").read_text("utf-8"))["project"].get(
            "urls", {}
        )
