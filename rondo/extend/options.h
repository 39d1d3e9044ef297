#pragma once

// Options that a strategy, engine, model or kind of data of one's own declares (docs/configuration.md).
#include "rondo/options/declaration.h"
#include "rondo/options/option.h"
#include "rondo/options/option_table.h"
