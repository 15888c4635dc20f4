#include "cli/commands/job_options.h"

#include "common/base/error.h"

namespace muster {

void JobOptions::Add(CLI::App& command, bool needs_config) {
  CLI::Option* const file = config.AddConfig(command)->required(needs_config);
  config.AddShorthand(
      command, "--workers", "cluster.workers", "N",
      "Number of worker processes (cluster.workers); default: one per core, but at most 8 and a "
      "divisor of run.slices");
  config.AddShorthand(command, "--slices", "run.slices", "N",
                      "Parts of a batch (run.slices): the bits depend on them, not on the workers");
  config.AddShorthand(command, "--data", "data.dir", "DIR", "Data directory (data.dir)");
  CLI::Option* const run_dir = config.AddShorthand(
      command, "--run-dir", "run.dir", "DIR",
      "Directory for the run's files (run.dir); default: runs/<config>-<date>-<time>");
  // A resumed run uses the config in its directory.
  command
      .add_option("--resume", resume,
                  "Resume the run in this directory; latest: the newest one; auto: resume the run "
                  "in --run-dir, or start it "
                  "if it has not begun")
      ->type_name("RUN_DIR|auto")
      ->check(SomeText())
      ->trigger_on_parse()
      ->each([file, needs_config](const std::string& dir) {
        file->required(needs_config && dir == kResumeAuto);
      });
  command.parse_complete_callback([this, file, run_dir] {
    if (resume.empty() || resume == kResumeAuto) return;
    for (const CLI::Option* other : {file, run_dir}) {
      if (other->count() > 0) throw CLI::ExcludesError("--resume RUN_DIR", other->get_name());
    }
  });
  CLI::Option* const epochs =
      config.AddShorthand(command, "--epochs", "run.epochs", "N",
                          "Length of training in passes over the training set (run.epochs)");
  config
      .AddShorthand(command, "--steps", "run.steps", "N",
                    "Length of training in steps of one global batch (run.steps)")
      ->excludes(epochs);
  config.AddShorthand(command, "--seed", "run.seed", "S",
                      "Seed of all random numbers: weights, sample order, augmentation (run.seed)");
  config.AddInitialWeights(command);
  config.AddShorthand(command, "--freeze", "model.freeze", "NAMES",
                      "Layers that do not learn, by name or beginning, such as 'conv1,layer*' "
                      "(model.freeze)");
}

LaunchArguments JobOptions::arguments() const {
  for (const Setting& setting : config.settings()) {
    if (setting.path != "run.dir" || setting.value != kLatest) continue;
    throw Error(ExitCode::kUsage, "{}: this name means the newest run; choose another",
                setting.origin);
  }
  return {.config_path = config.path(),
          .settings = config.settings(),
          .server_program = Sibling("muster-server"),
          .worker_program = Sibling("muster-worker"),
          .resume = resume == kResumeAuto ? "" : RunNamed(resume),
          .resume_or_begin = resume == kResumeAuto};
}

}  // namespace muster
