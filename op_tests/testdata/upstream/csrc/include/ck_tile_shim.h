// AIter replaces parts of Composable Kernel here; the small tree uses none of them.
#pragma once
