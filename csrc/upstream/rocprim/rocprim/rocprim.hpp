// AIter includes rocPRIM in sources that use nothing of it.
#pragma once
