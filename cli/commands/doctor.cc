// `muster doctor`.
#include "cli/commands/options.h"
#include "cli/data/count_samples.h"
#include "cli/doctor/doctor_command.h"
#include "cli/doctor/hosts_command.h"

namespace muster {
namespace {

struct DoctorOptions : ConfigOptions {
  std::string hosts, ssh = "ssh";
};

void DescribeDoctor(CLI::App& command, DoctorOptions& options) {
  CLI::Option* const config =
      command.add_option("CONFIG", options.config, "Also check whether this config would run here")
          ->type_name("FILE");
  options.AddSet(command, "Change any setting of the config; may be repeated")->needs(config);
  options
      .AddShorthand(command, "--workers", "cluster.workers", "N",
                    "Number of worker processes (cluster.workers)")
      ->needs(config);
  options.AddShorthand(command, "--data", "data.dir", "DIR", "Data directory (data.dir)")
      ->needs(config);
  options
      .AddShorthand(command, "--run-dir", "run.dir", "DIR",
                    "Directory for the run's files (run.dir)")
      ->needs(config);
  options.AddShorthand(command, "--devices", "worker.devices", "LIST",
                       "Also check whether these GPUs are available now: auto, auto:N, or a list "
                       "from `muster gpus` (worker.devices)");
  CLI::Option* const hosts =
      AddOption(command, "--hosts", options.hosts, "LIST",
                "Check instead whether these hosts, such as a,user@b, can train together, and "
                "measure the network between each two of them and this one");
  hosts->excludes(config);
  AddOption(command, "--ssh", options.ssh, "COMMAND",
            "With --hosts: instead of ssh, such as \"ssh -p 2222\"")
      ->needs(hosts);
  command.footer(
      "Examples:\n"
      "  muster doctor\n"
      "  muster doctor configs/cifar10.txtpb --data data --workers 2\n"
      "  muster doctor configs/cifar10.txtpb --data data --devices auto:4\n"
      "  muster doctor --hosts a,b,c\n"
      "\n"
      "Exit codes: 0 runs would work; 1 something is wrong; 2 command line or config; 5 a host "
      "did not answer; 8 a host has another version.");
}

int DoDoctor(const DoctorOptions& options) {
  if (!options.hosts.empty()) {
    return RunHostsDoctor({.hosts = ParseHosts("--hosts", options.hosts),
                           .ssh = {.words = ParseSsh(options.ssh), .muster = Sibling("muster")}});
  }
  return RunDoctor(
      {.config_path = options.path(),
       .settings = options.settings(),
       .programs = {Sibling("muster"), Sibling("muster-server"), Sibling("muster-worker")},
       .count_data = CountSamples});
}

}  // namespace

void AddDoctor(CLI::App& app, Action& action) {
  AddCommand<DoctorOptions>(app, action, "doctor", "Check whether runs would work here",
                            DescribeDoctor, DoDoctor);
}

}  // namespace muster
