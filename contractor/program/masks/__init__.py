"""The register of masks: a kind is one file here and one line below."""

from __future__ import annotations

from contractor.program.masks.blocks import Blocks
from contractor.program.masks.causal import Causal
from contractor.program.masks.decay import Decay
from contractor.program.masks.delta import Delta
from contractor.program.masks.dilated import Dilated
from contractor.program.masks.documents import Documents
from contractor.program.masks.fourier import Fourier
from contractor.program.masks.full import Full
from contractor.program.masks.mask import Kind
from contractor.program.masks.matrix import Matrix
from contractor.program.masks.prefix import Prefix
from contractor.program.masks.product import Product
from contractor.program.masks.semiseparable import Semiseparable
from contractor.program.masks.toeplitz import Toeplitz
from contractor.program.masks.window import Window

KINDS: tuple[Kind, ...] = (
    Full(),
    Causal(),
    Decay(),
    Semiseparable(),
    Product(),
    Delta(),
    Toeplitz(),
    Fourier(),
    Window(),
    Dilated(),
    Blocks(),
    Prefix(),
    Documents(),
    Matrix(),
)
MASKS: dict[str, Kind] = {kind.name: kind for kind in KINDS}
