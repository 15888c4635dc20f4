#!/usr/bin/env python3
"""How many simulated runs it takes to notice a mistake in the recovery of lost work. Each mutant changes one place of
one file; the simulation is linked with the changed file, and plays seeds until one of them is wrong.

    tests/simulation/mutants.py build/release [--seeds 20000] [--only WORD]

Prints a table: the seed that noticed, or the unit test where no run did, and what was wrong. A mutant that survives is a mistake that nothing here would
notice, or a rule that nobody misses; the exit code is 1 if there is one that is not marked as equivalent.
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

# Asked where no run notices: rules that save time, and messages that the simulation does not send.
UNIT_TESTS = {
    "ps/": ["ps_test"],
    "worker/": ["client_test"],
}

# file, from (once in the file), to, what the program does then; with a fifth element, why no run can notice
MUTANTS = [
    # What counts, and what is unassigned.
    ("ps/step/step_work.cc", "order.open = false;\n    if (order.step == step_", "if (order.step == step_",
     "orders of a lost worker stay open"),
    ("ps/step/step_work.cc", "if (order.step == step_ && !order.IsDelivered()) some_unassigned_ = true", "",
     "the slices of a lost worker are forgotten"),
    ("ps/step/step_work.cc", "if (order.rank == rank) order.rank = kNobody", "",
     "the buffers of a lost worker count as its successor's"),
    ("ps/step/step_work.cc", "if (order.open || order.parts[i].in_use)", "if (order.open)",
     "the buffer of a closed order is given out again although a sum may read it"),
    ("ps/step/step_work.cc", "found->open && found->rank == rank &&\n", "found->rank == rank &&\n", "a loss counts under a closed order",
     "a closed order's worker is another incarnation, whose messages are dropped"),
    ("ps/step/step_work.cc", "order->open && order->rank == rank && order->step == step_;",
     "order->rank == rank && order->step == step_;", "a gradient counts under a closed order",
     "a closed order's worker is another incarnation, whose messages are dropped"),
    ("ps/step/step_work.cc", "} else if (!found->missing[part.chunk()]) {", "} else if (false) {",
     "a gradient is added twice", "no worker of the simulation says anything twice"),
    ("ps/step/arrived_gradients.cc", "arrived_.assign(", "arrived_.resize(", "gradients of the step before count as arrived"),
    ("ps/step/arrived_gradients.cc", "counts_.assign(static_cast<size_t>(slices), 0)",
     "counts_.resize(static_cast<size_t>(slices))", "slices of the step before count as arrived"),
    ("ps/step/step_work.cc", "std::erase_if(orders_, [step](const StepOrder& order) { return order.step < step; })", "",
     "orders of steps that are over stay", "they are delivered, and ask for nothing"),
    ("ps/step/step_work.cc", "some_unassigned_ = std::ranges::count(unassigned, true) > 0", "some_unassigned_ = false",
     "slices of workers that were lost before the step began are forgotten"),
    ("ps/step/step_work.cc", "std::erase_if(helpers, [this](uint32_t rank) { return Computes(rank); })", "",
     "workers get further slices before they have done their own"),
    ("ps/step/step_work.cc", "helpers.erase(helper);", "", "one worker gets all pieces"),
    ("ps/step/step_work.cc", "some_unassigned_ = needs_helpers_ = true;", "break;", "pieces without a helper are forgotten"),
    ("ps/step/step_work.cc", "some_unassigned_ = needs_helpers_ = true;", "some_unassigned_ = true;",
     "newcomers are not asked to help"),
    ("ps/step/step_work.cc", "unassigned[static_cast<size_t>(slice)] = false;\n    some_unassigned_ = true;", "",
     "the third attempt does not wait"),
    ("ps/step/step_work.cc", "if (!paused_until_ || *until < *paused_until_) paused_until_ = until", "",
     "what pauses is never given out"),
    ("ps/step/arrived_gradients.cc", "missing[c] = !Has(c, slices.begin)", "missing[c] = true",
     "chunks that have arrived are computed and added again"),
    ("ps/step/arrived_gradients.cc", "if (Has(c, slice) != Has(c, slices.begin)) return false", "",
     "a subtree is given whole of which parts have arrived"),
    ("ps/step/step_work.cc", "unassigned[s] = !arrived_.HasAll(static_cast<int64_t>(s))", "unassigned[s] = true",
     "slices that have arrived are given out again"),
    ("ps/step/step_work.cc", "s < slices.end; ++s)\n        unassigned[static_cast<size_t>(s)] = false",
     "s < slices.begin; ++s) unassigned[static_cast<size_t>(s)] = false", "slices are assigned twice"),
    ("ps/step/step_work.cc", "!suspected && arrived_.IsWhole(node)", "arrived_.IsWhole(node)", "suspected slices do not come by themselves"),
    ("ps/step/step_work.cc", "order.given += suspension", "(void)suspension",
     "work is late that was given before a suspension", "the wait itself is extended, and counts as well"),
    ("ps/step/step_work.cc", "now - std::max(order.given, since) > limit", "now - since > limit",
     "work that was given a moment ago is late"),
    ("ps/step/step_work.cc", "order.urgent != urgent)\n      continue", "false) continue",
     "a worker is suspected at its own slices while it does those of others"),
    ("ps/step/step_losses.cc", "return same ? Added::kSame : Added::kDiffers", "return Added::kSame",
     "different losses of a slice are not noticed", "nothing is wrong that they would show: overwritten weights are not read"),
    # Work that ends workers.
    ("ps/step/poison_watch.cc", "if (known != items.end()) suspects = {*known}", "",
     "everything that a worker held is blamed, and not what was suspected before"),
    ("ps/step/poison_watch.cc", "if (++losses.count >= kMostLosses) return item", "++losses.count",
     "work that ends workers is given out for ever"),
    ("ps/run/dispatcher.cc", "work_.slices.BeginStep(state_.step);\n  work_.poison.BeginStep();", "work_.slices.BeginStep(state_.step);",
     "losses of workers count across steps"),
    ("ps/run/dispatcher.cc", "return until ? Evaluator::Give::kLater : Evaluator::Give::kAlone",
     "return Evaluator::Give::kWithOthers", "suspected blocks do not come by themselves",
     "simulated blocks arrive at once: the first that is missing ended the worker"),
    ("ps/run/dispatcher.cc", "return until ? Evaluator::Give::kLater : Evaluator::Give::kAlone",
     "return Evaluator::Give::kAlone", "the third attempt at a block does not wait"),
    # Late workers.
    ("ps/run/late_workers.cc", "return idle.empty() ? std::vector<uint32_t>() : late", "return {}", "nobody is ever late"),
    ("ps/run/late_workers.cc", "return idle.empty() ? std::vector<uint32_t>() : late", "return late",
     "workers are late although nobody could do their work"),
    ("ps/run/late_workers.cc", "idle = roster_.ReadyToEnter();", "",
     "a worker that is ready to take part is no reason to reset a late one"),
    ("ps/run/dispatcher.cc", "  late_.OnReset();\n", "", "a reset does not double the limit"),
    ("ps/run/dispatcher.cc", "work_.slices.Close(rank);\n  members_.Reset(rank, now)", "members_.Reset(rank, now)",
     "the orders of a late worker stay open"),
    ("ps/run/dispatcher.cc", "work_.slices.Close(rank);\n  members_.Reset(rank, now)", "work_.slices.Close(rank)",
     "a late worker is not told that it begins anew"),
    ("ps/run/dispatcher.cc", "const int64_t slices = work_.slices.OpenSlices(rank), blocks = work_.evaluator.Drop(rank);",
     "const int64_t slices = work_.slices.OpenSlices(rank), blocks = 0;", "blocks of a late worker stay its own"),
    # Members.
    ("ps/run/dispatcher.cc", "const Dropped dropped{work_.slices.OpenSlices(rank), work_.evaluator.Drop(rank)}",
     "const Dropped dropped{work_.slices.OpenSlices(rank), 0}", "blocks of a lost worker stay its own"),
    ("ps/run/dispatcher.cc", "  work_.slices.Lose(rank);\n", "", "slices of a lost worker stay its own"),
    ("ps/run/dispatcher.cc", "(recovers_ && staying.size() < least)", "false", "a step is ordered from nobody"),
    ("ps/run/dispatcher.cc", "if (ordered_ < wanted_ || !goes_on) {", "if (ordered_ < wanted_) {",
     "nobody becomes active in the middle of a step when all are lost"),
    ("ps/run/dispatcher.cc", "if (ordered_ < wanted_ || !goes_on) {", "if (!goes_on) {",
     "nobody becomes active while there are too few workers"),
    ("ps/run/dispatcher.cc", "for (const uint32_t rank : active) Reset(rank, \"needed one", "for (const uint32_t rank : active) if (rank > 99) Reset(rank, \"needed one",
     "workers that begin with the next step are not reset when nobody has W(v)"),
    ("ps/members/roster.cc", "std::erase_if(helpers, lacks);\n  if (!helpers.empty()) return helpers;",
     "if (!helpers.empty()) return helpers;", "a worker is to compute a step whose weights it does not have"),
    ("ps/run/dispatcher.cc", "if (roster.at(rank).shares_memory) Activate(rank)", "(void)rank",
     "newcomers never help in the middle of a step"),
    ("ps/run/dispatcher.cc", "if (work_.slices.some_unassigned() && !work_.slices.Computes(rank)) MarkChanged()", "(void)rank",
     "slices that wait for a free worker are forgotten"),
    ("ps/run/dispatcher.cc", "if (!work_.evaluator.Owes(rank)) MarkChanged()", "(void)rank",
     "blocks that wait for a free worker are forgotten"),
    ("ps/run/dispatcher.cc", "if (!owes) members_.Release(rank)", "members_.Release(rank)",
     "a leaving worker is let go before it has delivered"),
    ("ps/run/dispatcher.cc", "if (members_.roster().at(rank).leaving) MarkChanged()", "",
     "a leaving worker is not let go when it has delivered"),
    ("ps/run/dispatcher.cc", "changed_ = recovers_ && (work_.slices.some_unassigned() ||", "changed_ = recovers_ && (",
     "a step that begins with unassigned slices goes on as if it had none"),
    ("ps/run/weights_feed.cc", "if (version > step_ && !published_[c]) break", "if (version > step_) break",
     "a worker that becomes active in the middle does not get what exists of W(v+1)"),
    ("ps/run/weights_feed.cc", "if (version == step_ + 1) published_[chunk] = true", "", "what exists of W(v+1) is not known"),
    ("ps/run/weights_feed.cc", "if (average_of == version) {", "if (false) {",
     "a worker that becomes active during an evaluation does not get the average"),
    ("ps/members/roster.cc", "++member.incarnation;", "", "a worker that begins anew keeps its incarnation"),
    ("ps/members/roster.cc", "member.weights_from.reset();", "", "a worker that begins anew counts as active"),
    ("ps/members/roster.cc", "!member.weights_from && !member.leaving", "!member.weights_from", "a leaving worker becomes active again"),
    ("ps/members/roster.cc", "member.weights_from.has_value() && !member.leaving", "member.weights_from.has_value()",
     "a leaving worker gets new orders"),
    ("ps/members/roster.cc", "return from && *from <= version", "return from.has_value()", "a worker counts as having all versions"),
    ("ps/members/membership.cc", "if (roster_.Matches(*rank, event.message.address())) return rank", "return rank",
     "what a former incarnation said counts"),
    ("ps/members/membership.cc", "member.last_heard = WithoutSuspension(member.last_heard, suspension)", "",
     "a suspended server blames its workers"),
    ("ps/members/membership.cc", "if (member.weights_from && member.present())", "if (member.present())",
     "weights go to workers that are not active"),
    ("ps/run/server.cc", "for (const uint32_t rank : members_.Silent(now, silence_s)) {", "for (const uint32_t rank : std::vector<uint32_t>{}) {",
     "silent workers are never given up"),
    ("ps/run/server.cc", "if (!member.present() || member.incarnation != loss.incarnation) continue", "if (!member.present()) continue",
     "a loss that was noticed twice costs the successor its seat"),
    # Steps.
    ("ps/run/run.cc", "return parts_.state.losses_complete && !parts_.keeper.checkpoints.copying() &&\n         !parts_.work.evaluator.Evaluates(parts_.state.step)",
     "return parts_.state.losses_complete && !parts_.keeper.checkpoints.copying()", "an update does not wait for the evaluation of W(v)"),
    ("ps/run/run.cc", "if (failure_.is_set() || !work.losses().Complete()) return \"\"", "if (failure_.is_set()) return \"\"",
     "an update does not wait for all losses"),
    ("ps/run/run.cc", "members_.Activate(rank, next);", "members_.Activate(rank, parts_.state.step);", "a joiner expects weights that do not come"),
    ("ps/run/run.cc", "if (dispatcher_.TimeIsUp(now)) dispatcher_.MarkChanged()", "", "what pauses is forgotten"),
    ("ps/run/run.cc", "if (dispatcher_.ResetLate(now, waits_.since())) waits_.Restart(now)", "", "nobody is looked at for being late"),
    ("ps/run/run_members.cc", "if (pending) {", "if (false) {", "an evaluation is not repeated after a restart"),
    ("ps/run/run_members.cc", "if (!pending || !parts_.decisions.any()) dispatcher_.Want(step, now)", "dispatcher_.Want(step + 1, now)",
     "a resumed run orders the step after"),
    ("ps/run/run_members.cc", "if (evaluator.running() && parts_.config.evaluation().use_ema()) {", "if (false) {",
     "the average is not sent again after a restart"),
    ("ps/run/run.cc", "if (resumption_.TestIsDue()) {", "if (false) {", "the test set is not evaluated at the end"),
    ("ps/run/run.cc", "    dispatcher_.BeginFinalEvaluation();\n    dispatcher_.OrderEvaluation(parts_.state.step, wire::TEST, now);",
     "    dispatcher_.OrderEvaluation(parts_.state.step, wire::TEST, now);", "losses of workers count across sets"),
    ("ps/run/waits.cc", "if (limit) verdict.lost.emplace_back(rank, fmt::format(\"no Ready", "if (false) verdict.lost.emplace_back(rank, fmt::format(\"no Ready",
     "workers that never say Ready are waited for", "no worker of the simulation lives and stays silent"),
    ("ps/record/checkpoint_arenas.cc", "i < names.size()", "i < 1", "a checkpoint lacks the optimizer's state"),
    # Sums and evaluations.
    ("ps/update/partial_gradients.cc", "Covers(part.node, slices_).begin > begin", "false", "the parts of a chunk are added in the order in which they came"),
    ("ps/update/partial_gradients.cc", "state.slices += Covers(node, slices_).size()", "state.slices += 1 << node.level",
     "the last subtree counts slices that do not exist"),
    ("ps/update/partial_gradients.cc", "    state.slices = 0;\n", "", "slices of the step before count"),
    ("ps/evaluate/evaluation.cc", "block.set() != set_", "false", "blocks of another set count",
     "blocks of another set come from a former incarnation, or not at all"),
    ("ps/evaluate/evaluation.cc", "owners_[static_cast<size_t>(number)] != rank || ", "", "blocks count from anybody",
     "nobody sends blocks that it was not given"),
    ("ps/evaluate/evaluation.cc", "std::ranges::replace(owners_, rank, kNobody)", "", "blocks of a lost worker stay its own"),
    # The worker.
    ("worker/client/session.cc", "} else if (addressee == Addressee::kFormer) {", "} else if (false) {",
     "a worker takes what was sent to its former incarnation"),
    ("worker/client/session.cc", "  orders_.clear();\n", "", "a worker that begins again keeps its old orders"),
    ("worker/client/session.cc", "leave_said_ = false;", "", "Leave is not repeated after a Reset",
     "no simulated worker leaves by its heartbeat"),
    ("worker/client/session.cc", "std::ranges::find_if_not(orders_, &Order::urgent)", "orders_.end()",
     "an urgent order waits for what was ordered before"),
    ("worker/client/session.cc", "if (!order.taken_over) return false", "if (true) return false",
     "a worker computes slices of a step that is over"),
    ("worker/client/client.cc", "if (session_.reset_pending()) return;\n  const trace::Span span(\"push\"",
     "const trace::Span span(\"push\"", "a worker pushes after it was told to begin again"),
]


def compile_commands(build):
    """Of each source: how it is compiled, by itself or as a part of a unity file."""
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
    """The text of the file with the mistake in it. Line breaks count as spaces."""
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
    # What is linked first counts.
    parts = shlex.split(link)
    program = f"{place}.{os.path.basename(parts[parts.index('-o') + 1])}"
    parts[parts.index("-o") + 1] = program
    parts.insert(parts.index("-o"), place)
    subprocess.run(parts + ["-Wl,--allow-multiple-definition"], cwd=build, check=True)
    return program


@functools.cache
def expect_success(build, test):
    if subprocess.run([os.path.join(build, "bin", test)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"mutants.py: {test} fails without a mutant")


def noticed_by_a_unit_test(path, place, build):
    for test in next(tests for folder, tests in UNIT_TESTS.items() if path.startswith(folder)):
        expect_success(build, test)
        program = link_mutant(place, link_command(build, test), build)
        done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
        os.remove(program)
        if done.returncode != 0:
            found = re.search(r"^\[  FAILED  \] (\S+)", done.stdout, re.M)
            return test, found[1] if found else f"ended with {done.returncode}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seeds", type=int, default=20000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--check", action="store_true", help="only say whether each mutant can be made")
    parser.add_argument("--only", default="", help="mutants whose file or text has this")
    parser.add_argument("--limit", type=int, default=120, help="seconds for each")
    arguments = parser.parse_args()
    for mutant in MUTANTS:
        mutated(mutant)
    if arguments.check:
        return 0
    build = os.path.abspath(arguments.build)
    commands, link = compile_commands(build), link_command(build, "simulate")
    survivors, tried = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number, mutant in enumerate(MUTANTS):
            path, what = mutant[0], mutant[3]
            if arguments.only not in path + what:
                continue
            tried += 1
            place = compile_mutant(number, mutant, commands, folder)
            program = link_mutant(place, link, build)
            try:
                noticed = None
                for what_to_play in (["--seeds", str(arguments.seeds), "--threads", str(arguments.threads)],
                                     ["--scenario", "all", "--seeds", "20"]):
                    done = subprocess.run([program, *what_to_play], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                          text=True, timeout=arguments.limit)
                    found = re.search(r"^seed (\d+).*\n\s+(.*)", done.stdout, re.M)
                    if found:
                        noticed = (found[1] if "--threads" in what_to_play else "named", found[2])
                    elif done.returncode != 0:
                        noticed = ("", f"ended with {done.returncode}: {done.stdout[:60]}")
                    if noticed:
                        break
                else:
                    noticed = noticed_by_a_unit_test(path, place, build)
            except subprocess.TimeoutExpired:
                noticed = ("", "a run that never ends")
            os.remove(program)
            if noticed:
                print(f"| {what} | {noticed[0]} | {noticed[1][:90]} |", flush=True)
            elif len(mutant) > 4:
                print(f"| {what} | equivalent | {mutant[4]} |", flush=True)
            else:
                survivors += 1
                print(f"| {what} | SURVIVED | {arguments.seeds} seeds |", flush=True)
    print(f"{tried} mutants, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
