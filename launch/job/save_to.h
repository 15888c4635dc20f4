// checkpoint.save_to: where the last checkpoint, the weights and the metrics of a run go that its
// own directory cannot take.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/config/config.h"
#include "launch/job/run_dir.h"
#include "launch/runs/save_place.h"
#include "proto/config.pb.h"

namespace muster {

// Where that is if nobody has said: a folder of its own below muster-saved in the home directory.
// "" where there is no such directory that can be written, or it is on the file system of the run
// directory: then it would be as full.
std::string UsualSaveTo(const RunDir& dir);

// A folder that somebody has asked for is looked at before anything is started: what is wrong with
// it would else be known when it is needed. It is made, written into, and kept for this run alone
// as long as this object lives. Then nothing is left of it unless something of the run has come to
// lie in it.
class SaveTo {
 public:
  struct How {
    std::string asked;     // on the command line; "": the config says it
    bool resumed = false;  // the run's own files may be there
    bool usual = false;    // nobody has asked for it: it is made when it is needed
  };
  // `config` of a run in `dir`; does nothing without a checkpoint.save_to. Throws Error(kUsage).
  SaveTo(const config::Config& config, const RunDir& dir, const How& how);
  ~SaveTo();
  SaveTo(const SaveTo&) = delete;

  // What a person should know of it; "": nothing.
  const std::string& warning() const { return warning_; }

 private:
  void Check(const RunDir& dir, bool resumed);
  void Make();
  void Probe(bool resumed);
  void Lock();
  [[noreturn]] void Refuse(const std::string& why) const;
  void RemoveIfEmpty() noexcept;

  const std::string folder_, shown_;
  std::vector<std::string> made_;  // folders that were not there, the innermost last
  UniqueFd lock_;
  bool taken_ = false;  // nobody else uses it
  std::string warning_;
};

// What a run in `dir` goes on or begins with: sets the usual place in `config` where none is asked
// for. One that a resumed run had, and that is no good any more or another run's, as a copy of a
// run finds it, is only warned of. Throws Error(kUsage).
std::unique_ptr<SaveTo> TakeSaveTo(const std::vector<Setting>& settings, const RunDir& dir,
                                   bool resumed, config::Config& config, std::string& warning);

// Throws Error(kUsage) if files of a run are in this folder. Makes nothing.
void CheckSaveToIsFree(const std::string& folder, const std::string& shown);

// What can be known of that of a new run without making anything. Throws Error(kUsage).
void CheckSaveTo(const config::Config& config, const std::vector<Setting>& settings);

// How checkpoint.save_to was asked for on the command line; "" if it was not.
std::string AskedSaveTo(const std::vector<Setting>& settings);

}  // namespace muster
