#pragma once

// Declared options of a custom strategy, engine, model or kind of data (docs/configuration.md).
#include "rondo/options/declaration.h"
#include "rondo/options/option.h"
#include "rondo/options/option_table.h"
