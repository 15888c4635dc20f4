// `muster doctor`: whether runs would work here, and what to do if not.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/data/count_samples.h"
#include "cli/doctor/examine.h"
#include "common/config/config.h"

namespace muster {

struct DoctorArguments {
  std::string config_path;  // "": the machine alone
  std::vector<Setting> settings;
  std::vector<std::string> programs;  // muster, muster-server, muster-worker
  std::function<DataCount(const config::Config&)> count_data;
};

// A line or more each, of at most `width` characters.
std::vector<std::string> DoctorLines(const Findings& findings, int width, bool color);

// Returns the exit code: 0, or 1 if a run would fail. Throws Error(kUsage) for a config that is
// wrong, or for devices that are not there.
int RunDoctor(const DoctorArguments& arguments);

}  // namespace muster
