// `muster host`: the part of a launch on another host, started by one ssh. It tells about its host,
// starts and signals the workers of its host, and passes on their output and their ends.
//
// Launcher and agent exchange lines of JSON over standard input and output. The launcher sends
//   {"check": {"endpoint": E, "secret": S, "config": TEXT}}   config is optional
//   {"measure": {"address": A, "secret": S}}                  listens there for the next one
//   {"connect": {"endpoint": E, "secret": S}}
//   {"stay": true}                                            there will be more messages
//   {"job": {"config": TEXT, "token": T, "endpoint": E, "folder": F, "environment": [V, ...],
//            "relay": {"used": B, "bind": ENDPOINT, "via": ENDPOINT},     see RelayPlan
//            "gpus": {"workers": N, "for": NAME, "wait_s": S}}}           with worker.backend=CUDA
//   {"start": RANK, "local_rank": N}
//   {"signal": NUMBER, "rank": RANK}
// and the agent
//   {"facts": {...}}                                          see HostFacts
//   {"listening": ENDPOINT}
//   {"measured": [LATENCY, TO, FROM]} or {"unmeasured": PROBLEM}   see LinkFacts; "": nobody came
//   {"connected": PROBLEM}                                    after it; no problem: ""
//   {"started": RANK, "pid": P}
//   {"signaled": RANK, "signal": NUMBER}
//   {"line": TEXT, "rank": RANK}                              a line of its output
//   {"ended": RANK, "by_signal": B, "value": V, "asked": A}
//   {"trace": TEXT, "rank": RANK, "last": B}                  lines of its trace part, after its
//   end
//   {"relay": RANK, "by_signal": B, "value": V, "asked": A}   the end of the relay, whose output is
//                                                             in this worker's log
//
// Nothing outlives the agent. It ends when its standard input does, which is when the launcher or
// the connection has ended, or with its parent, which is sshd, and when it has had no worker for a
// while: if a network fails without a word, the workers notice first, because the server is silent.
#pragma once

#include <string>

namespace muster {

// Returns the exit code.
int RunHostAgent(const std::string& worker_program);

}  // namespace muster
