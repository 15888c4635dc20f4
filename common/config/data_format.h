// The formats of data sets (data.format), one row each in data_format.cc: what has to be known of
// the data before their files are opened, since the network is built first. worker/data reads the
// files.
#pragma once

#include <cstdint>

#include "common/graph/shape.h"
#include "proto/config_fwd.h"

namespace muster {

// The shape of a sample as stored, and after preprocessing.
Shape StoredShape(const config::Data& data);
Shape InputShape(const config::Data& data);
int64_t DataClasses(const config::Data& data);

// Whether the data are read from data.dir.
bool NeedsFiles(const config::Data& data);
// Throws Error(kUsage) that says how to get such data if data.dir is needed and missing.
void RequireDataDir(const config::Data& data);

// Fills in data.class_names if it is not given and the format or its files name the classes. A list
// that does not have a name for each class is ignored.
void ResolveClassNames(config::Data& data);

}  // namespace muster
