// Which weights a command is about.
#pragma once

#include <string>

#include "cli/process/held_file.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {

struct ModelChoice {
  bool average = false;  // --ema
  bool raw = false;      // --raw
  bool best = false;     // --best
};

struct OpenedModel {
  std::string shown;  // the file, or the folder of the checkpoint
  HeldFile held;      // what is read, for other processes
  SafetensorsReader file;
};

// `from`: a file, the folder of a checkpoint, or a run directory. Of a run directory the choice
// tells the file; without one it is model.safetensors, or, where that is missing or older, the
// newest checkpoint that is whole. Of a checkpoint it is what an evaluation uses: the average with
// evaluation.use_ema, else the weights. Throws Error: kUsage for a choice that does not fit, kData
// if it cannot be read, or is damaged.
OpenedModel OpenModel(const std::string& from, const ModelChoice& choice);

// Whether `path` is to be opened with OpenModel, and not read as a config: a directory, a file with
// the name of a safetensors file, or one that is not a text.
bool IsModel(const std::string& path);

// Whether it is the folder of a checkpoint.
bool IsCheckpoint(const std::string& path);

}  // namespace muster
