#!/usr/bin/env python3
"""Makes mistakes in the recovery of lost work, one at a time, and prints what notices each: the first seed with which a
simulated run is wrong, a scenario of tests/simulation/scenario.cc, or a unit test.

    tests/simulation/mutants.py build/release [--seeds 20000] [--only WORD] [--record]

A mutant changes one place of one file, and is compiled and linked with the rest of the build. Configure the build with
-DMUSTER_UNITY=OFF: otherwise each mutant compiles a whole batch of files. --record writes the results to
docs/MODEL.md. The exit code is 1 if a mutant survives that is not marked as equivalent.
"""
import argparse
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap

# Run if no simulated run notices: rules that save time, and messages that the simulation does not send.
UNIT_TESTS = {
    "ps/": ["ps_test"],
    "worker/": ["client_test"],
}

# A string is the rule of the mutants that follow: its number under "Recovery" in docs/DESIGN.md, or "lost" for the
# paragraph above the rules. A mutant is file, old text (unique in the file), new text, the mistake, and, if it is
# equivalent, why nothing can notice.
MUTANTS = [
    "1",
    ("tests/simulation/network.cc", "DropBefore(tensor.urgency.step - 1)", "DropBefore(tensor.urgency.step)",
     "a tensor of the version that workers read is dropped for a newer one"),
    ("tests/simulation/network.cc", "connection->to_worker.DropBefore(tensor.urgency.step - 1);", "",
     "old versions keep their place in the queue of a slow wire", "no worker reads them: the queue only grows"),
    "2",
    ("ps/step/step_work.cc", "order.open = false;\n    if (order.step == step_", "if (order.step == step_",
     "orders of a lost worker stay open"),
    ("ps/step/step_work.cc", "if (order.step == step_ && !order.IsDelivered()) some_unassigned_ = true", "",
     "the slices of a lost worker are forgotten"),
    ("ps/step/step_work.cc", "if (order.rank == rank) order.rank = kNobody", "",
     "the successor of a lost worker owns its gradient buffers"),
    ("ps/step/step_work.cc", "found->open && found->rank == rank &&\n", "found->rank == rank &&\n",
     "a loss counts under a closed order", "the order's worker is reset or lost: its messages are dropped"),
    ("ps/step/step_work.cc", "order->open && order->rank == rank && order->step == step_;",
     "order->rank == rank && order->step == step_;", "a gradient counts under a closed order"),
    ("ps/step/step_work.cc", "std::erase_if(orders_, [step](const StepOrder& order) { return order.step < step; })",
     "", "orders of completed steps are kept"),
    ("ps/run/dispatcher.cc", "  work_.slices.Lose(rank);\n", "", "a lost worker keeps its slices"),
    ("ps/members/membership.cc", "if (roster_.Matches(*rank, event.message.address())) return rank", "return rank",
     "messages of an earlier incarnation are accepted",
     "results under closed orders are dropped, and an evaluated block is the same"),
    ("worker/client/session.cc", "} else if (addressee == Addressee::kFormer) {", "} else if (false) {",
     "a worker reads messages to its earlier incarnation"),
    ("worker/client/session.cc", "  orders_.clear();\n", "", "a reset worker keeps its orders"),
    ("worker/client/session.cc", "if (!order.taken_over) return false", "if (true) return false",
     "a worker computes slices of a completed step"),
    ("worker/client/client.cc", "if (session_.reset_pending()) return;\n  const trace::Span span(\"push\"",
     "const trace::Span span(\"push\"", "a worker pushes gradients after its Reset",
     "their order is closed: the server drops them"),
    "3",
    ("ps/step/step_work.cc", "if (order.open || order.parts[i].in_use)", "if (order.open)",
     "the buffer of a closed order is reused while a sum may read it"),
    ("ps/step/step_work.cc", "} else if (!found->missing[part.chunk()]) {", "} else if (false) {",
     "a gradient is added twice"),
    ("ps/step/arrived_gradients.cc", "arrived_.assign(", "arrived_.resize(",
     "gradients of the previous step count as arrived"),
    ("ps/step/arrived_gradients.cc", "counts_.assign(static_cast<size_t>(slices), 0)",
     "counts_.resize(static_cast<size_t>(slices))", "slices of the previous step count as arrived"),
    ("ps/step/arrived_gradients.cc", "missing[c] = !Has(c, slices.begin)", "missing[c] = true",
     "chunks that have arrived are computed and added again"),
    ("ps/step/arrived_gradients.cc", "if (Has(c, slice) != Has(c, slices.begin)) return false", "",
     "a subtree of which parts have arrived is assigned as a whole"),
    ("ps/step/step_work.cc", "unassigned[s] = !arrived_.HasAll(static_cast<int64_t>(s))", "unassigned[s] = true",
     "slices that have arrived are assigned again"),
    ("ps/update/partial_gradients.cc", "Covers(part.node, slices_).begin > begin", "false",
     "the parts of a chunk are added in the order of arrival"),
    ("ps/update/partial_gradients.cc", "state.slices += Covers(node, slices_).size()",
     "state.slices += 1 << node.level", "the last subtree counts slices that do not exist"),
    ("ps/update/partial_gradients.cc", "    state.slices = 0;\n", "", "added slices of the previous step count"),
    "4",
    ("ps/step/step_work.cc", "some_unassigned_ = std::ranges::count(unassigned, true) > 0",
     "some_unassigned_ = false", "slices of workers lost before the step are forgotten"),
    ("ps/step/step_work.cc", "std::erase_if(helpers, [this](uint32_t rank) { return Computes(rank); })", "",
     "a worker gets urgent orders before it has reported its losses"),
    ("ps/step/step_work.cc", "helpers.erase(helper);", "", "one worker gets all pieces"),
    ("ps/step/step_work.cc", "some_unassigned_ = needs_helpers_ = true;", "break;",
     "pieces without a helper are forgotten"),
    ("ps/step/step_work.cc", "s < slices.end; ++s)\n        unassigned[static_cast<size_t>(s)] = false",
     "s < slices.begin; ++s) unassigned[static_cast<size_t>(s)] = false", "slices are assigned twice"),
    ("ps/run/dispatcher.cc", "if (work_.slices.some_unassigned() && !work_.slices.Computes(rank)) MarkChanged()",
     "(void)rank", "slices that wait for an idle worker are forgotten"),
    ("ps/run/dispatcher.cc", "changed_ = recovers_ && (work_.slices.some_unassigned() ||",
     "changed_ = recovers_ && (", "slices that are unassigned when a step begins are forgotten"),
    ("worker/client/session.cc", "std::ranges::find_if_not(orders_, &Order::urgent)", "orders_.end()",
     "an urgent order waits for earlier orders"),
    "5",
    ("ps/step/step_work.cc", "order.given += suspension", "(void)suspension",
     "a suspension counts for an order given before it"),
    ("ps/step/step_work.cc", "now - std::max(order.given, since) > limit", "now - since > limit",
     "the time before an order counts for it"),
    ("ps/run/late_workers.cc", "return idle.empty() ? std::vector<uint32_t>() : late", "return {}",
     "no worker is slow"),
    ("ps/run/late_workers.cc", "return idle.empty() ? std::vector<uint32_t>() : late", "return late",
     "a worker is slow although no other is idle"),
    ("ps/run/late_workers.cc", "idle = roster_.ReadyToEnter();", "", "a ready worker does not count as idle"),
    ("ps/run/dispatcher.cc", "  late_.OnReset();\n", "", "a reset does not double the limit"),
    ("ps/run/dispatcher.cc", "work_.slices.Close(rank);\n  members_.Reset(rank, now)", "members_.Reset(rank, now)",
     "the orders of a reset worker stay open"),
    ("ps/run/dispatcher.cc", "work_.slices.Close(rank);\n  members_.Reset(rank, now)", "work_.slices.Close(rank)",
     "a reset worker is not notified"),
    ("ps/members/roster.cc", "++member.incarnation;", "", "a reset worker keeps its incarnation"),
    ("ps/members/roster.cc", "member.weights_from.reset();", "", "a reset worker stays active"),
    ("ps/run/run.cc", "if (dispatcher_.ResetLate(now, waits_.since())) waits_.Restart(now)", "",
     "slow workers are not looked for"),
    "6",
    ("ps/run/run.cc",
     "return parts_.state.losses_complete && !parts_.keeper.checkpoints.copying() &&\n         !parts_.work.evaluator.Evaluates(parts_.state.step)",
     "return parts_.state.losses_complete && !parts_.keeper.checkpoints.copying()",
     "an update does not wait for the evaluation of W(v)"),
    ("ps/run/run.cc", "!parts_.keeper.checkpoints.copying() &&\n         ", "",
     "an update does not wait for the checkpoint's copy"),
    ("ps/run/run.cc", "if (failure_.is_set() || !work.losses().Complete()) return \"\"",
     "if (failure_.is_set()) return \"\"", "an update does not wait for all losses"),
    "7",
    ("ps/step/step_losses.cc", "return same ? Added::kSame : Added::kDiffers", "return Added::kSame",
     "different losses of a slice are accepted"),
    "8",
    ("ps/step/step_work.cc", "some_unassigned_ = needs_helpers_ = true;", "some_unassigned_ = true;",
     "waiting workers do not help when slices wait"),
    ("ps/run/dispatcher.cc", "if (ordered_ < wanted_ || !goes_on) {", "if (ordered_ < wanted_) {",
     "no worker becomes active in a step that has lost all workers"),
    ("ps/run/dispatcher.cc", "if (ordered_ < wanted_ || !goes_on) {", "if (!goes_on) {",
     "no worker becomes active while too few are active"),
    ("ps/run/dispatcher.cc", "for (const uint32_t rank : active) Reset(rank, \"needed one",
     "for (const uint32_t rank : active) if (rank > 99) Reset(rank, \"needed one",
     "workers that are active from the next step are not reset when no other has W(v)"),
    ("ps/members/roster.cc", "std::erase_if(helpers, lacks);\n  if (!helpers.empty()) return helpers;",
     "if (!helpers.empty()) return helpers;", "a worker gets slices of a step whose weights it does not have"),
    ("ps/run/dispatcher.cc", "if (roster.at(rank).shares_memory) Activate(rank)", "(void)rank",
     "a waiting worker never helps during a step"),
    ("ps/run/weights_feed.cc", "if (version > step_ && !published_[c]) break", "if (version > step_) break",
     "a worker that becomes active during a step does not get the chunks of W(v + 1)"),
    ("ps/run/weights_feed.cc", "if (version == step_ + 1) published_[chunk] = true", "",
     "the published chunks of W(v + 1) are not recorded"),
    ("ps/run/weights_feed.cc", "if (average_of == version) {", "if (false) {",
     "a worker that becomes active during an evaluation does not get the average"),
    ("ps/members/roster.cc", "return from && *from <= version", "return from.has_value()",
     "an active worker counts as having all versions"),
    ("ps/members/membership.cc", "if (member.weights_from && member.present())", "if (member.present())",
     "weights are sent to workers that are not active"),
    ("ps/run/run.cc", "members_.Activate(rank, next);", "members_.Activate(rank, parts_.state.step);",
     "a new worker becomes active with a version that is not sent"),
    "9",
    ("ps/step/step_work.cc", "unassigned[static_cast<size_t>(slice)] = false;\n    some_unassigned_ = true;", "",
     "the third attempt at a slice does not pause"),
    ("ps/step/step_work.cc", "if (!paused_until_ || *until < *paused_until_) paused_until_ = until", "",
     "a slice is not assigned after its pause"),
    ("ps/step/step_work.cc", "!suspected && arrived_.IsWhole(node)", "arrived_.IsWhole(node)",
     "a slice at which a worker was lost is assigned with others"),
    ("ps/step/step_work.cc", "order.urgent != urgent)\n      continue", "false) continue",
     "a worker that computes an urgent order is suspected at its own slices"),
    ("ps/step/poison_watch.cc", "if (known != items.end()) items = {WorkItem(*known)}", "",
     "a loss is blamed on all that the worker held, not on the suspected item"),
    ("ps/run/dispatcher.cc", "work_.poison.OnReset(rank, HeldItems(work_, state_, members_.roster(), rank));", "",
     "a worker that hangs is not blamed on what it held when it was reset"),
    ("ps/run/run_members.cc", "parts_.work.poison.Forget(rank);", "", "a worker that returns still counts as one that hangs"),
    ("ps/step/poison_watch.cc", "taken_.clear();", "", "work of the previous step is blamed when a reset worker is lost"),
    ("ps/step/poison_watch.cc", "if (++losses.count >= kMostLosses) return item", "++losses.count",
     "a slice is assigned again after three losses"),
    ("ps/run/dispatcher.cc", "work_.slices.BeginStep(state_.step);\n  work_.poison.BeginStep();",
     "work_.slices.BeginStep(state_.step);", "losses of workers count across steps"),
    ("ps/run/run.cc", "if (dispatcher_.TimeIsUp(now)) dispatcher_.MarkChanged()", "",
     "the end of a pause is not noticed"),
    "10",
    ("ps/run/dispatcher.cc", "(recovers_ && staying.size() < least)", "false",
     "a step is ordered with too few workers"),
    ("ps/members/roster.cc", ">= std::max(1U, terms_.least)", ">= 1",
     "CONTINUE: a run starts below cluster.min_workers after the deadline"),
    ("ps/run/run_members.cc", "config::Cluster::CONTINUE || !roster.IsEnough()", "config::Cluster::CONTINUE",
     "CONTINUE: missing workers are given up although too few are there"),
    ("ps/run/run_members.cc", "parts_.config.cluster().on_lost_worker() != config::Cluster::CONTINUE || ", "",
     "REPLACE: a run starts without missing workers"),
    ("ps/run/run_members.cc", "roster.MissingRanks().empty() && roster.IsEnough()", "roster.MissingRanks().empty()",
     "CONTINUE: a run starts below cluster.min_workers", "no step is ordered below it"),
    ("ps/run/run_members.cc", "members_.GiveUp(rank);\n    parts_.keeper", "parts_.keeper",
     "CONTINUE: missing workers are waited for after the deadline"),
    ("ps/run/run_members.cc", "members_.GiveUp(rank);\n    BeginIfComplete(now);", "",
     "CONTINUE: the start waits for a lost worker"),
    "11",
    ("ps/run/dispatcher.cc", "if (!owes) members_.Release(rank)", "members_.Release(rank)",
     "a leaving worker is released before it has delivered"),
    ("ps/run/dispatcher.cc", "if (members_.roster().at(rank).leaving) MarkChanged()", "",
     "a leaving worker is not released when it has delivered"),
    ("ps/members/membership.cc", "roster_.at(rank).weights_from.reset();", "", "a released worker gets more work"),
    ("ps/members/roster.cc", "!member.weights_from && !member.leaving", "!member.weights_from",
     "a leaving worker becomes active again"),
    ("ps/members/roster.cc", "member.weights_from.has_value() && !member.leaving", "member.weights_from.has_value()",
     "a leaving worker gets new orders"),
    ("worker/client/session.cc", "leave_said_ = false;", "", "Leave is not repeated after a Reset"),
    "12",
    ("ps/run/dispatcher.cc", "return until ? Evaluator::Give::kLater : Evaluator::Give::kAlone",
     "return Evaluator::Give::kWithOthers", "a block at which a worker was lost is assigned with others",
     "simulated blocks arrive at once: the worker was lost at the first missing one"),
    ("ps/run/dispatcher.cc", "return until ? Evaluator::Give::kLater : Evaluator::Give::kAlone",
     "return Evaluator::Give::kAlone", "the third attempt at a block does not pause"),
    ("ps/run/dispatcher.cc",
     "const int64_t slices = work_.slices.OpenSlices(rank), blocks = work_.evaluator.Drop(rank);",
     "const int64_t slices = work_.slices.OpenSlices(rank), blocks = 0;", "a reset worker keeps its blocks"),
    ("ps/run/dispatcher.cc", "const Dropped dropped{work_.slices.OpenSlices(rank), work_.evaluator.Drop(rank)}",
     "const Dropped dropped{work_.slices.OpenSlices(rank), 0}", "a lost worker keeps its blocks"),
    ("ps/run/dispatcher.cc", "if (!work_.evaluator.Owes(rank)) MarkChanged()", "(void)rank",
     "blocks that wait for an idle worker are forgotten"),
    ("ps/run/run.cc", "if (resumption_.TestIsDue()) {", "if (false) {", "the test set is not evaluated at the end"),
    ("ps/run/run.cc",
     "    dispatcher_.BeginFinalEvaluation();\n    dispatcher_.OrderEvaluation(parts_.state.step, wire::TEST, now);",
     "    dispatcher_.OrderEvaluation(parts_.state.step, wire::TEST, now);", "losses of workers count across sets"),
    ("ps/run/run.cc", "const bool waits = evaluator.running() && parts_.decisions.any();", "const bool waits = false;",
     "a step is ordered before the decision that follows an evaluation"),
    ("ps/evaluate/evaluation.cc", "block.set() != set_", "false", "blocks of another set count"),
    ("ps/evaluate/evaluation.cc", "owners_[static_cast<size_t>(number)] != rank || ", "",
     "a block counts from a worker that does not own it"),
    ("ps/evaluate/evaluation.cc", "std::ranges::replace(owners_, rank, kNobody)", "",
     "the evaluation forgets to unassign the blocks of a lost worker"),
    "13",
    ("ps/run/run_members.cc", "if (pending) {", "if (false) {", "an evaluation is not repeated after a restart"),
    ("ps/run/run_members.cc", "if (!pending || !parts_.decisions.any()) dispatcher_.Want(step, now)",
     "dispatcher_.Want(step + 1, now)", "a resumed run orders the step after its own"),
    ("ps/run/run_members.cc", "if (evaluator.running() && parts_.config.evaluation().use_ema()) {", "if (false) {",
     "the average is not sent after a restart"),
    ("ps/record/checkpoint_arenas.cc", "i < names.size()", "i < 1", "a checkpoint lacks the optimizer state"),
    ("ps/record/kept_checkpoints.cc", "evaluated_ && evaluated_->first == name.step", "false",
     "a checkpoint that is written after its evaluation counts as not evaluated"),
    ("ps/record/checkpoints.cc",
     "a.progress().last_evaluation().step() == b.progress().last_evaluation().step() &&", "",
     "a checkpoint that lacks the last evaluation is not written again"),
    ("ps/record/model_saver.cc", "info.updates = reader.state().updates();", "",
     "best weights that are written again lose their number of updates"),
    "lost",
    ("ps/members/membership.cc", "member.last_heard = WithoutSuspension(member.last_heard, suspension)", "",
     "a suspension of the server counts as silence of its workers"),
    ("ps/run/server.cc", "for (const uint32_t rank : members_.Silent(now, silence_s)) {",
     "for (const uint32_t rank : std::vector<uint32_t>{}) {", "a silent worker is not lost"),
    ("ps/run/server.cc", "if (!member.present() || member.incarnation != loss.incarnation) continue",
     "if (!member.present()) continue", "a second report of a loss applies to the next worker of the rank",
     "no worker gets the rank between the report and the loss"),
    ("ps/run/waits.cc", "if (limit) verdict.lost.emplace_back(rank, fmt::format(\"no Ready",
     "if (false) verdict.lost.emplace_back(rank, fmt::format(\"no Ready",
     "a worker that never sends Ready is waited for"),
]


LIST = "docs/MODEL.md"
ENTRY = " → "  # between a mistake and what notices it


def rules_and_mutants():
    rule = None
    for entry in MUTANTS:
        if isinstance(entry, str):
            rule = entry
        else:
            yield rule, entry


def split_list():
    """The document before the list of mistakes, and what noticed each."""
    with open(LIST) as file:
        before, entries = re.split(r"(?=^\*\*Rule 1\*\*$)", file.read(), maxsplit=1, flags=re.M)
    found = re.findall(r"^- (.*(?:\n  .*)*)", entries, re.M)
    return before, dict(" ".join(entry.split()).split(ENTRY) for entry in found)


def write_list(results):
    before, noticed = split_list()
    noticed.update(results)
    lines, last = [], None
    for rule, (_, _, _, what, *_) in rules_and_mutants():
        if rule != last:
            lines += ["", f"**Rule {rule}**" if rule.isdigit() else "**Loss of a worker**", ""]
            last = rule
        lines += textwrap.wrap(f"- {what}{ENTRY}{noticed.get(what, 'not run')}", 100, subsequent_indent="  ",
                               break_long_words=False, break_on_hyphens=False)
    with open(LIST, "w") as file:
        file.write(before + "\n".join(lines[1:]) + "\n")


def check():
    """Each mutant can be made, and the document lists it."""
    names = []
    for _, mutant in rules_and_mutants():
        mutated(mutant)
        names.append(mutant[3])
    noticed = split_list()[1]
    if list(noticed) != names:
        sys.exit(f"mutants.py: the list in {LIST} is out of date: run the new mutants with --record")
    print(f"{len(names)} mutants, {list(noticed.values()).count('not run')} of them not run since they changed")


def compile_commands(build):
    """Maps each source to its entry in compile_commands.json, or to that of its unity file."""
    commands = {}
    with open(os.path.join(build, "compile_commands.json")) as file:
        entries = json.load(file)
    for entry in entries:
        commands[os.path.relpath(entry["file"])] = entry
        if "/Unity/" in entry["file"]:
            with open(entry["file"]) as unity:
                for source in re.findall(r'#include "(.*)"', unity.read()):
                    commands[os.path.relpath(source)] = entry
    return commands


def link_command(build, target):
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", target], stdout=subprocess.PIPE, text=True,
                              check=True).stdout.splitlines()
    return re.sub(r"^: && | && :$", "", commands[-1])


def mutated(mutant):
    """The text of the file with the mistake. Any white space in the old text matches any other."""
    path, old, new = mutant[:3]
    with open(path) as file:
        text = file.read()
    found = list(re.finditer(r"\s+".join(re.escape(word) for word in re.split(r"\s+", old)), text))
    if len(found) != 1:
        sys.exit(f"mutants.py: {path}: expected \"{old}\" once, found it {len(found)} times")
    return text[:found[0].start()] + new + text[found[0].end():]


def compile_mutant(number, mutant, commands, folder):
    path, text = mutant[0], mutated(mutant)
    source = os.path.join(folder, f"{number}_{os.path.basename(path)}")
    with open(source, "w") as file:
        file.write(text)
    entry = commands[path]
    if "/Unity/" in entry["file"]:
        with open(entry["file"]) as file:
            unity = file.read().replace(f'"{os.path.abspath(path)}"', f'"{source}"')
        source += ".unity.cxx"
        with open(source, "w") as file:
            file.write(unity)
    command = shlex.split(entry["command"])
    place, output = os.path.join(folder, f"{number}.o"), command.index("-o") + 1
    command[output] = place
    command = [source if part == entry["file"] else part for part in command] + ["-w"]
    for flag in ("-MD", "-MT", "-MF"):
        if flag in command:
            at = command.index(flag)
            del command[at:at + (1 if flag == "-MD" else 2)]
    subprocess.run(command, cwd=entry["directory"], check=True)
    return place


def link_mutant(place, link, build):
    # The first definition of a symbol is linked.
    parts = shlex.split(link)
    program = f"{place}.{os.path.basename(parts[parts.index('-o') + 1])}"
    parts[parts.index("-o") + 1] = program
    parts.insert(1, place)
    subprocess.run(parts + ["-Wl,--allow-multiple-definition"], cwd=build, check=True)
    return program


@functools.cache
def expect_success(build, test):
    if subprocess.run([os.path.join(build, "bin", test)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"mutants.py: {test} fails without a mutant")


def noticed_by_a_unit_test(path, place, build):
    for test in next((tests for folder, tests in UNIT_TESTS.items() if path.startswith(folder)), []):
        expect_success(build, test)
        program = link_mutant(place, link_command(build, test), build)
        done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
        os.remove(program)
        if done.returncode != 0:
            found = re.search(r"^\[  FAILED  \] ([^\s,]+)", done.stdout, re.M)
            return f"{test} {found[1]}" if found else test, f"ended with {done.returncode}"
    return None


def first_notice(path, place, build, link, arguments):
    """What notices the mutant, and what is wrong then; or None."""
    program = link_mutant(place, link, build)
    seeds = ["--seeds", str(arguments.seeds), "--threads", str(arguments.threads)]
    try:
        for options in (seeds, ["--scenario", "all", "--seeds", "20"]):
            done = subprocess.run([program, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                  timeout=arguments.limit)
            found = re.search(r'^seed (\d+).*\n\s+(.*)\n[\s\S]*?simulate (?:--scenario "(.*)" )?--first', done.stdout, re.M)
            if found:
                return (f"scenario: {found[3]}" if found[3] else f"seed {found[1]}"), found[2]
            if done.returncode != 0:
                return "a crash of the simulation", f"exit code {done.returncode}"
        return noticed_by_a_unit_test(path, place, build)
    except subprocess.TimeoutExpired:
        return f"a run that takes more than {arguments.limit} s", ""
    finally:
        os.remove(program)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seeds", type=int, default=20000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--check", action="store_true", help="only check the mutants' places and the list")
    parser.add_argument("--only", default="", help="run the mutants whose file or text contains this")
    parser.add_argument("--missing", action="store_true", help=f"run the mutants without a result in {LIST}")
    parser.add_argument("--record", action="store_true", help=f"write the results to {LIST}")
    parser.add_argument("--limit", type=int, default=900, help="seconds for the simulated runs of a mutant")
    arguments = parser.parse_args()
    if arguments.check:
        return check()
    build = os.path.abspath(arguments.build)
    commands, link = compile_commands(build), link_command(build, "simulate")
    noticed, tried, survivors = split_list()[1], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (rule, mutant) in enumerate(rules_and_mutants()):
            path, _, _, what, *equivalent = mutant
            if arguments.only not in path + ": " + what or arguments.missing and noticed.get(what, "not run") != "not run":
                continue
            tried += 1
            place = compile_mutant(number, mutant, commands, folder)
            how, wrong = first_notice(path, place, build, link, arguments) or ("", "")
            os.remove(place)
            if not how:
                survivors += 0 if equivalent else 1
                how = f"equivalent: {equivalent[0]}" if equivalent else f"SURVIVES {arguments.seeds} seeds"
            print(f"| {rule} | {what} | {how} | {wrong[:90]}", flush=True)
            if arguments.record:
                write_list({what: how})
    print(f"{tried} mutants, {survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
