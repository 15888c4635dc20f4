// The commands of `muster`, one file each. Each function adds one command with its options, help
// and action.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace muster {

// Runs the command after its options are parsed. `behind` holds the words after "--", the command
// line of another program, which most commands refuse. Returns the exit code; throws Error.
using Action = std::function<int(const std::vector<std::string>& behind)>;

// Adds all commands, in the order of the help.
void AddCommands(CLI::App& app, Action& action);

void AddBench(CLI::App& app, Action& action);
void AddData(CLI::App& app, Action& action);
void AddDoctor(CLI::App& app, Action& action);
void AddEval(CLI::App& app, Action& action);
void AddExport(CLI::App& app, Action& action);
void AddGpus(CLI::App& app, Action& action);
void AddHost(CLI::App& app, Action& action);
void AddImport(CLI::App& app, Action& action);
void AddInspect(CLI::App& app, Action& action);
void AddLaunch(CLI::App& app, Action& action);
void AddPlot(CLI::App& app, Action& action);
void AddPredict(CLI::App& app, Action& action);
void AddRuns(CLI::App& app, Action& action);
void AddServer(CLI::App& app, Action& action);
void AddToken(CLI::App& app, Action& action);
void AddTop(CLI::App& app, Action& action);
void AddTrace(CLI::App& app, Action& action);
void AddVerify(CLI::App& app, Action& action);
void AddWeights(CLI::App& app, Action& action);
void AddWorker(CLI::App& app, Action& action);

}  // namespace muster
