"""The stub worker as a process."""

import sys

from plugins.dispatch.embedded.stub.command import main

sys.exit(main())
