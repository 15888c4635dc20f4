// The size of a job in words: its batch, how much of the machine it uses, and what the bits of its
// result depend on. Of a resolved config; lines without newlines.
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

// "batch_per_worker" and "global_batch" at once: "128 images, 64 for each of 2 workers".
std::string BatchText(const config::Config& config);

// "8 slices", and what each worker has of them where that is not the same.
std::string SlicesText(const config::Config& config);

// What to do about cores that do not compute, or about workers that share them. "" where each core
// has its thread.
std::string CoresText(const config::Config& config, int cores);

// Whether another number of workers gives the same bits, and everything they depend on beside the
// network, the data and the update. `by_hand`: the workers' processors are not known.
std::vector<std::string> BitsTexts(const config::Config& config, bool by_hand);

}  // namespace muster
