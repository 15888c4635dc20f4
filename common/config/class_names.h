// The names of a data set's classes (data.class_names).
#pragma once

#include "proto/config_fwd.h"

namespace muster {

// Fills them in where they are not given and known: from batches.meta.txt of CIFAR-10's binary
// version, or as MNIST's digits. A list that does not have a name for each class is left out.
void ResolveClassNames(config::Data& data);

}  // namespace muster
