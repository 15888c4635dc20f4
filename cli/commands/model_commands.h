// The commands about files of weights. Each returns its exit code.
#pragma once

#include "cli/commands/arguments.h"

namespace muster {

int Inspect(const Arguments& arguments);
int Import(const Arguments& arguments);
int Export(const Arguments& arguments);
int Eval(const Arguments& arguments);
int Predict(const Arguments& arguments);

}  // namespace muster
