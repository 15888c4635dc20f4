// How the software GPU says that a program did what it may not do. See ViolationRecorder.
#pragma once

#include <string>

namespace muster::software_gpu {

// "software GPU: WHAT" to standard error and abort, unless recorded.
void ReportViolation(const std::string& what);

// "function at file:line" of an address in code, as far as the program has debug information.
std::string DescribeCode(const void* address);

}  // namespace muster::software_gpu
