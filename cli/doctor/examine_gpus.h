// Judges this machine's GPUs, and whether a job would get those that it asks for. Pure functions.
#pragma once

#include "cli/doctor/finding.h"
#include "cli/doctor/gpu_facts.h"

namespace muster {

Findings ExamineGpus(const GpuFacts& facts);

}  // namespace muster
