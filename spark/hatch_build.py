"""Build hooks: metadata that both distributions share, and the jar of a wheel.

The version is the one in `rust/Cargo.toml`.
"""

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
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


class RealTimeJar(BuildHookInterface[Any]):
    """Compiles the jar into a wheel. Without a compiler, or PySpark to compile against, the wheel has none, and says
    so. `RMQPY_JAR=required` makes that an error."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the jar before the files of the wheel are listed. A checkout has the one of `make spark`."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        import build_jar

        try:
            build_jar.build()
        except build_jar.MissingTool as missing:
            if os.environ.get("RMQPY_JAR") == "required":
                raise
            build_jar.JAR.unlink(missing_ok=True)
            self.app.display_warning(f"the wheel has no format rocketmq-jvm: {missing}")
