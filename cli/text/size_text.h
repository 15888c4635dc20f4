// Describes the size of a job: its batch, how much of the machine it uses, and what the bits of its
// result depend on. Takes resolved configs; lines have no newlines.
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

// "128 images (global_batch) = 2 workers x 64 (batch_per_worker)".
std::string BatchText(const config::Config& config);

// "8 slices", and the numbers per worker if they differ.
std::string SlicesText(const config::Config& config);

// Advice on idle cores, or on workers that share cores. "" if each core has one thread.
std::string CoresText(const config::Config& config, int cores);

// Whether another number of workers gives the same bits, and what they depend on besides the
// network, the data and the update. `by_hand`: the workers' processors are unknown.
std::vector<std::string> BitsTexts(const config::Config& config, bool by_hand);

}  // namespace muster
