// Stands in for muster-server and muster-worker in the launcher's tests. It runs a script from the
// environment, after the same first steps as the real programs.
//
// Its program name selects the role. The script is FAKE_SERVER, or FAKE_WORKER_<rank>, or
// FAKE_WORKER: actions separated by ';', run in order. Then the process waits forever.
//
//   report:JSON      a line on the report descriptor (server); @ stands for the endpoint
//   raw:TEXT         TEXT without a newline on the report descriptor
//   flood:N          N long lines on the report descriptor
//   say:TEXT         a line on standard error, which is the log
//   print:TEXT       a line on standard output
//   sleep:SECONDS    exit:CODE    signal:NUMBER    ignore:SIGNAL
//   until:FILE       wait until FILE exists        touch:FILE    create it
//   fork:            leave a child process running
//   gone:FILE        wait for the parent's failure; exit with 7 as soon as FILE exists
//   on-term:JSON     on SIGTERM report JSON and exit with 143 (server)
//   term-touch:FILE  on SIGTERM create FILE and continue
//   dump:FILE        write the token, every argument, one per line, and the config
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

namespace {

std::map<std::string, std::string> options;
int report_fd = -1;
char term_report[4096];
char term_file[4096];

void Write(const std::string& text) {
  if (report_fd < 0 || ::write(report_fd, text.data(), text.size()) < 0) ::_exit(99);
}

void OnTerm(int) {
  if (::write(report_fd, term_report, std::strlen(term_report)) < 0) ::_exit(99);
  ::_exit(143);
}

void TouchOnTerm(int) { ::close(::open(term_file, O_WRONLY | O_CREAT, 0644)); }

void WaitFor(const std::string& file) {
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void Dump(const std::string& path, int argc, char** argv) {
  std::ofstream out(path + ".partial");
  std::string token;
  std::ifstream(options["--token-file"]) >> token;
  out << token << "\n";
  for (int i = 0; i < argc; ++i) out << argv[i] << "\n";
  out << std::ifstream(options["--config"]).rdbuf();
  out.close();
  std::filesystem::rename(path + ".partial", path);
}

void Do(const std::string& verb, std::string text, int argc, char** argv) {
  if (size_t at = text.find('@'); at != std::string::npos && verb == "report") {
    text.replace(at, 1, options["--endpoint"]);
  }
  if (verb == "report") Write(text + "\n");
  if (verb == "raw") Write(text);
  if (verb == "flood") {
    for (int i = std::stoi(text); i > 0; --i) Write(std::string(5000, 'x') + "\n");
  }
  if (verb == "say") std::fprintf(stderr, "%s\n", text.c_str());
  if (verb == "print") {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }
  if (verb == "sleep") std::this_thread::sleep_for(std::chrono::duration<double>(std::stod(text)));
  if (verb == "exit") ::_exit(std::stoi(text));
  if (verb == "signal") {
    ::signal(std::stoi(text), SIG_DFL);  // sanitizers handle some signals
    ::kill(::getpid(), std::stoi(text));
  }
  if (verb == "ignore") ::signal(std::stoi(text), SIG_IGN);
  if (verb == "until") WaitFor(text);
  if (verb == "touch") std::ofstream(text).flush();
  if (verb == "fork" && ::fork() == 0) {
    for (;;) ::pause();
  }
  if (verb == "gone") {
    WaitFor(text);
    ::_exit(7);
  }
  if (verb == "on-term") {
    std::snprintf(term_report, sizeof term_report, "%s\n", text.c_str());
    ::signal(SIGTERM, OnTerm);
  }
  if (verb == "term-touch") {
    std::snprintf(term_file, sizeof term_file, "%s", text.c_str());
    ::signal(SIGTERM, TouchOnTerm);
  }
  if (verb == "dump") Dump(text, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  const int first = argc > 1 && *argv[1] != '-' ? 2 : 1;  // a worker has a subcommand
  for (int i = first; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGUSR2, SIG_IGN);  // the launcher's notice that the job has failed
  // A launched process gets --parent. One started by hand has a named token file.
  const bool by_hand =
      !options.contains("--parent") && options["--token-file"].find("/proc/self/") != 0;
  if (!by_hand && std::to_string(::getppid()) != options["--parent"]) return 98;
  if (options.contains("--report-fd")) report_fd = std::stoi(options["--report-fd"]);

  bool server = std::string(argv[0]).ends_with("muster-server");
  const char* script = std::getenv(server ? "FAKE_SERVER" : "FAKE_WORKER");
  std::string own = "FAKE_WORKER_" + (options.contains("--rank") ? options["--rank"] : "0");
  if (!server && std::getenv(own.c_str()) != nullptr) script = std::getenv(own.c_str());

  if (server) {  // like the real server, before any output
    const std::filesystem::path dir = std::filesystem::path(options["--config"]).parent_path();
    for (const char* name : {"metrics.jsonl", "run.events"}) std::ofstream(dir / name);
  }
  std::istringstream actions(script != nullptr ? script : "");
  std::string action;
  while (std::getline(actions, action, ';')) {
    size_t colon = action.find(':');
    Do(action.substr(0, colon), colon == std::string::npos ? "" : action.substr(colon + 1), argc,
       argv);
  }
  for (;;) ::pause();
}
