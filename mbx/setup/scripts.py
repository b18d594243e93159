"""Where setup gets what hooks run: the files of `mbx.hooks`, joined here and nowhere else."""

import os

from mbx.hooks.scripts import opencode_plugin, scripts
from mbx.paths import Paths
from mbx.setup.client import Scripts
from mbx.setup.entries import Installation


def scripts_for(installation: Installation) -> Scripts:
    """What the hooks of an installation run."""
    paths = Paths.from_environ({**installation.environ, "MBX_HOME": installation.home})
    folder = os.path.join(paths.home(), "bin")
    files = {os.path.join(folder, one.name): one.content for one in scripts(paths)}
    return Scripts(files, opencode_plugin(paths))
