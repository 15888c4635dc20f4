// Reports violations, that is, uses that CUDA forbids. See ViolationRecorder.
#pragma once

#include <string>

namespace muster::software_gpu {

// Prints "software GPU: WHAT" to standard error and aborts, unless recorded.
void ReportViolation(const std::string& what);
// The same for a call, which then returns this status.
template <typename Status>
Status Refuse(Status status, const std::string& what) {
  ReportViolation(what);
  return status;
}

// "function at file:line" for a code address, as far as there is debug information.
std::string DescribeCode(const void* address);

}  // namespace muster::software_gpu
