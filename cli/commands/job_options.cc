#include "cli/commands/job_options.h"

namespace muster {

void JobOptions::Add(CLI::App& command) {
  CLI::Option* const file = config.AddConfig(command);
  config.AddShorthand(
      command, "--workers", "cluster.workers", "N",
      "Worker processes (cluster.workers); default: one a core that divides the slices, at most 8");
  config.AddShorthand(command, "--data", "data.dir", "DIR", "Directory of the data (data.dir)");
  CLI::Option* const run_dir = config.AddShorthand(
      command, "--run-dir", "run.dir", "DIR",
      "Where the run's files go (run.dir); default: runs/<config>-<date>-<time>");
  // The run's own config is in its directory.
  command
      .add_option("--resume", resume,
                  "Go on with the run of this directory; auto: with that of --run-dir if it has "
                  "begun, else begin it")
      ->type_name("RUN_DIR|auto")
      ->check(SomeText())
      ->trigger_on_parse()
      ->each([file](const std::string& dir) { file->required(dir == kResumeAuto); });
  command.parse_complete_callback([this, file, run_dir] {
    if (resume.empty() || resume == kResumeAuto) return;
    for (const CLI::Option* other : {file, run_dir}) {
      if (other->count() > 0) throw CLI::ExcludesError("--resume RUN_DIR", other->get_name());
    }
  });
  CLI::Option* const epochs =
      config.AddShorthand(command, "--epochs", "run.epochs", "N",
                          "How long to train, in passes over the training set (run.epochs)");
  config
      .AddShorthand(command, "--steps", "run.steps", "N",
                    "… or in steps, each of one global batch (run.steps)")
      ->excludes(epochs);
  config.AddShorthand(
      command, "--seed", "run.seed", "S",
      "Another seed, other random numbers: weights, order, augmentation (run.seed)");
  config.AddInitialWeights(command);
}

LaunchArguments JobOptions::arguments() const {
  return {.config_path = config.path(),
          .settings = config.settings(),
          .server_program = Sibling("muster-server"),
          .worker_program = Sibling("muster-worker"),
          .resume = resume == kResumeAuto ? "" : resume,
          .resume_or_begin = resume == kResumeAuto};
}

}  // namespace muster
