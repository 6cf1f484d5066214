#!/usr/bin/env python3
"""tests/gpu/sass.py PLUGIN [NVCC]: count the machine instructions of the kernels in libgradpool_cuda.so.

Disassembles the sm_90 code of the plugin with cuobjdump and nvdisasm, finds the main loop of each kernel in the table
sass_bounds.BOUNDS, and counts the instructions on the longest path through one iteration. The main loop must stay below its
bound, contain a 128-bit access, and contain no scalar load of a parameter: what depends only on the channel belongs
before the loop. NVCC: the compiler, whose folder may contain the tools; otherwise scripts/test installs them in build/venv.

tests/gpu/predict.py predicts with the measurements in model/kernels.json, which must be those of the plugin.

  --list       print every kernel of the table, with its number of instructions
  --write      write model/kernels.json
  --self-test  check that planted faults are found"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

import sass_bounds

LINE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[T0-9]+)\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
NAME = re.compile(r"\d(grid_[a-z0-9_]+?)(?:I[A-Z].*)?E?14gp_kernel_args")
WIDTH = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


class Instruction:
    def __init__(self, address, guard, opcode, operands):
        self.address, self.guard, self.opcode, self.operands = address, guard, opcode, operands

    def access(self):
        """Return "LDG.E.128" for a load or store of that width, "FFMA" for a multiplication with addition, or None.

        Kernels access global memory also by generic instructions, LD and ST, through pointers that they have loaded."""
        parts = self.opcode.split(".")
        if parts[0] == "FFMA":
            return "FFMA"
        kind = {"LD": "LDG", "ST": "STG"}.get(parts[0], parts[0])
        if kind not in ("LDG", "STG"):
            return None
        return ".".join([kind, "E"] + [p for p in parts[1:] if p in WIDTH])


def access_bytes(access):
    return WIDTH.get(access.split(".")[-1], 4)


def parse(text):
    """Return the functions of a disassembly: {kernel name: [instructions of each instance]}."""
    functions, instructions = {}, None
    for line in text.splitlines():
        if "Function :" in line:
            name = NAME.search(line)
            instructions = None
            if name is not None:
                instructions = []
                functions.setdefault(name.group(1)[len("grid_"):], []).append(instructions)
        found = LINE.match(line) if instructions is not None else None
        if found:
            address, guard, opcode, operands = found.groups()
            instructions.append(Instruction(int(address, 16), guard, opcode, operands.strip()))
    return functions


class Block:
    def __init__(self, instructions):
        self.instructions, self.next = instructions, []


def jump_target(instruction):
    target = re.search(r"0x([0-9a-f]+)$", instruction.operands)
    return int(target.group(1), 16) if target else None


def is_jump(instruction):
    return instruction.opcode.split(".")[0] in ("BRA", "BRX", "JMP", "EXIT", "RET", "BSYNC")


def blocks_of(instructions):
    """Split a function into basic blocks. Return {address: Block}, whose `next` holds addresses."""
    starts, reconverge = {instructions[0].address}, {}
    following = {a.address: b.address for a, b in zip(instructions, instructions[1:])}
    for i in instructions:
        kind = i.opcode.split(".")[0]
        if kind in ("BRA", "JMP", "BSSY") and jump_target(i) is not None:
            starts.add(jump_target(i))
        if is_jump(i) and i.address in following:
            starts.add(following[i.address])
    blocks, block = {}, None
    for i in instructions:
        if i.address in starts:
            block = blocks[i.address] = Block([])
        block.instructions.append(i)
    for block in blocks.values():
        for i in block.instructions:
            if i.opcode.startswith("BSSY"):
                reconverge[i.operands.split(",")[0]] = jump_target(i)
        last = block.instructions[-1]
        kind, after = last.opcode.split(".")[0], following.get(last.address)
        conditional = last.guard is not None or re.match(r"!?U?P\d", last.operands) is not None
        if kind in ("BRA", "JMP"):
            block.next.append(jump_target(last))
        if kind == "BSYNC":
            block.next.append(reconverge.get(last.operands.split(",")[0], after))
        if not is_jump(last) or (conditional and kind != "BSYNC"):
            block.next.append(after)
        block.next = [a for a in dict.fromkeys(block.next) if a in blocks]
    return blocks


def dominators(blocks, entry):
    reached, stack = set(), [entry]
    while stack:
        at = stack.pop()
        if at not in reached:
            reached.add(at)
            stack += blocks[at].next
    before = {a: [b for b in reached if a in blocks[b].next] for a in reached}
    dominating = {a: set(reached) for a in reached}
    dominating[entry] = {entry}
    changed = True
    while changed:
        changed = False
        for a in sorted(reached - {entry}):
            new = {a} | set.intersection(*(dominating[b] for b in before[a]))
            changed |= new != dominating[a]
            dominating[a] = new
    return dominating, before


def loops_of(blocks):
    """Return the natural loops: {header address: set of block addresses}."""
    dominating, before = dominators(blocks, min(blocks))
    loops = {}
    for a in dominating:
        for header in blocks[a].next:
            if header not in dominating[a]:
                continue
            body, stack = loops.setdefault(header, {header}), [a]
            while stack:
                at = stack.pop()
                if at not in body:
                    body.add(at)
                    stack += before[at]
    return loops


class Path:
    """The longest path through one iteration of a loop: its instructions, and the accesses outside of inner loops."""

    def __init__(self, count=0.0, accesses=()):
        self.count, self.accesses = count, list(accesses)


def longest_path(blocks, loops, header, trips):
    """Return the longest path through a loop. trips: iterations of the loops inside it, the outer one first."""
    body = loops[header]
    inner = {h: b for h, b in loops.items() if h in body and h != header and b < body}
    outermost = {h: b for h, b in inner.items() if not any(h in o and b < o for k, o in inner.items() if k != h)}
    owner = {a: h for h, b in outermost.items() for a in b}
    known = {}
    times, deeper = (trips[0], trips[1:]) if trips else (1, ())

    def leaving(node):
        """Return the successors of a block, or of a whole inner loop, inside this loop."""
        members = outermost.get(node, {node})
        return {owner.get(n, n) for m in members for n in blocks[m].next if n in body and n not in members} - {header}

    def walk(node):
        if node not in known:
            rest = max((walk(n) for n in leaving(node)), key=lambda p: p.count, default=Path())
            if node in outermost:
                known[node] = Path(rest.count + times * longest_path(blocks, loops, node, deeper).count, rest.accesses)
            else:
                own = [i.access() for i in blocks[node].instructions if i.access()]
                known[node] = Path(rest.count + len(blocks[node].instructions), own + rest.accesses)
        return known[node]

    return walk(header)


class Result:
    """Measurement of a kernel: instructions for eight elements, what the main loop lacks, and the bytes that an iteration loads."""

    def __init__(self, count, faults, loaded=0):
        self.count, self.faults, self.loaded = count, faults, loaded


def measure(instructions, row):
    """Measure the main loop: the one with most units. Of equal loops, which variants of a kernel have, the longest counts."""
    blocks = blocks_of(instructions)
    loops = loops_of(blocks)
    kind = row.unit.split(".")[0]
    best = None
    for header, body in loops.items():
        path = longest_path(blocks, loops, header, row.trips)
        units = path.accesses.count(row.unit)
        moved = sum(access_bytes(a) for a in path.accesses if a.startswith(kind))
        if moved and (best is None or (units, moved, path.count) > best[:3]):
            best = (units, moved, path.count, path, body)
    if best is None:
        return Result(len(instructions) * 8, [f"no loop with {row.unit}"])
    units, _, _, path, body = best
    # A loop without the unit processes one element per iteration.
    eights = units / row.per_eight if units else 1 / 8
    accesses = [i.access() for a in body for i in blocks[a].instructions if i.access()]
    scalar = sorted({a for a in accesses if a.startswith("LDG") and access_bytes(a) < 16 and a != row.unit} - row.loads)
    faults = [f"{accesses.count(a)} scalar loads {a} in the main loop" for a in scalar]
    if not any(access_bytes(a) == 16 for a in accesses) and access_bytes(row.unit) == 16:
        faults.append("no 128-bit access in the main loop")
    loaded = sum(access_bytes(a) for a in path.accesses if a.startswith("LDG"))
    count = path.count / eights
    return Result(round(count, 1) if count < 20 else round(count), faults, loaded)


def measure_worst(instances, row):
    """Return the measurement of a kernel's costliest instance; templates have several."""
    results = [measure(i, row) for i in instances]
    return Result(max(r.count for r in results), sorted({f for r in results for f in r.faults}), min(r.loaded for r in results))


def check(functions, bounds, not_yet_met):
    """Return the violations, as messages, and the measurement of each kernel."""
    problems, results = [], {}
    for name in not_yet_met:
        if name not in bounds:
            problems.append(f"{name}: listed as not yet met, but has no bound")
    for name, row in bounds.items():
        listed = not_yet_met.get(name)
        if name not in functions:
            if listed != 0:
                problems.append(f"{name}: the plugin has no such kernel")
            continue
        if listed == 0:
            problems.append(f"{name}: exists; set its number in NOT_YET_MET, or remove it there")
            continue
        r = results[name] = measure_worst(functions[name], row)
        met = r.count <= row.bound and not r.faults
        if listed is None and not met:
            problems.append(f"{name}: {r.count} instructions for eight elements, bound {row.bound}" + "".join(f"; {f}" for f in r.faults))
        if listed is not None and met:
            problems.append(f"{name}: meets its bound ({r.count} of {row.bound}); remove it from NOT_YET_MET")
        if listed is not None and not met and r.count > listed:
            problems.append(f"{name}: {r.count} instructions for eight elements, more than the {listed} in NOT_YET_MET")
    return problems, results


def find_tools(nvcc):
    """Return the path of cuobjdump, and an environment in which it finds nvdisasm."""
    folders = [os.path.dirname(nvcc)] if nvcc else []
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    for at in sys.path + [os.path.join(root, "build", "venv", "lib", "python3*", "site-packages")]:
        folders += glob.glob(os.path.join(at, "nvidia", "cu*", "bin")) if at else []
    path = os.pathsep.join(folders + [os.environ.get("PATH", "")])
    missing = [t for t in ("cuobjdump", "nvdisasm") if shutil.which(t, path=path) is None]
    if missing:
        sys.exit(f"{' and '.join(missing)} not found; run scripts/test, or pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    return shutil.which("cuobjdump", path=path), dict(os.environ, PATH=path)


def disassemble(plugin, nvcc):
    tool, environment = find_tools(nvcc)
    done = subprocess.run([tool, "-sass", "-arch", "sm_90", plugin], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{tool} failed for {plugin}: {done.stderr.strip()}")
    return done.stdout


# ---- measurements for predict.py ----

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model", "kernels.json")
CLOSE = 0.1
ABOUT = ("Kernels of the plugin, measured by tests/gpu/sass.py --write: instructions for eight elements, bytes that a thread loads in an "
         "iteration of the main loop, registers, and whether the kernel meets its bound.")


def registers_of(plugin, nvcc):
    """Return {kernel name: registers of a thread}, the largest number of its instances."""
    tool, environment = find_tools(nvcc)
    done = subprocess.run([tool, "-res-usage", "-arch", "sm_90", plugin], env=environment, capture_output=True, text=True, check=True)
    registers = {}
    for symbol, count in re.findall(r"Function (\S+):\s+REG:(\d+)", done.stdout):
        name = NAME.search(symbol)
        if name is not None:
            key = name.group(1)[len("grid_"):]
            registers[key] = max(registers.get(key, 0), int(count))
    return registers


def table_of(results, registers):
    rows = {name: {"instructions": r.count, "loads": r.loaded, "registers": registers[name], "met": not r.faults and r.count <= sass_bounds.BOUNDS[name].bound}
            for name, r in sorted(results.items())}
    return {"about": ABOUT, "kernels": rows}


def is_close(known, measured):
    """Return whether two rows are alike. Versions of the compiler differ by a few instructions and registers."""
    if known is None or measured is None or known["met"] != measured["met"]:
        return False
    return all(abs(known[k] - measured[k]) <= CLOSE * measured[k] for k in ("instructions", "loads", "registers"))


def table_problems(known, measured):
    """Compare the kernels in model/kernels.json with those of the plugin."""
    differing = sorted(n for n in known.keys() | measured.keys() if not is_close(known.get(n), measured.get(n)))
    return [f"{n}: model/kernels.json has other measurements than the plugin; run tests/gpu/sass.py PLUGIN --write" for n in differing]


GOOD = """
        Function : _ZN1a13grid_wide_addE14gp_kernel_argsj
        /*0000*/ S2R R0, SR_TID.X ;
        /*0010*/ LDG.E R9, desc[UR4][R2.64] ;
        /*0020*/ LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/ @P1 BRA 0x50 ;
        /*0040*/ FADD R4, R4, R4 ;
        /*0050*/ STG.E.128 desc[UR4][R2.64], R4 ;
        /*0060*/ @!P0 BRA 0x20 ;
        /*0070*/ EXIT ;
"""


def self_test():
    """Run check() on a small kernel and on variants with one fault each."""
    row = sass_bounds.Row(5, sass_bounds.STORE)
    plants = [
        ("nothing", GOOD, {}, None),
        ("listed, but met", GOOD, {"wide_add": 5}, "meets its bound"),
        ("scalar load in the loop", GOOD.replace("FADD R4, R4, R4", "LDG.E R4, desc[UR4][R2.64]"), {}, "scalar loads"),
        ("one instruction more", GOOD.replace("FADD R4, R4, R4 ;", "FADD R4, R4, R4 ;\n        /*0048*/ NOP ;"), {}, "bound 5"),
        ("no wide access", GOOD.replace(".128", ""), {}, "no 128-bit access"),
        ("a regression", GOOD.replace(".128", ""), {"wide_add": 30}, "more than the 30"),
        ("a new kernel", GOOD, {"wide_add": 0}, "exists"),
        ("a missing kernel", GOOD.replace("wide_add", "wide_sub"), {}, "no such kernel"),
    ]
    for what, text, listed, expected in plants:
        problems, _ = check(parse(text), {"wide_add": row}, listed)
        if bool(problems) != bool(expected) or (expected and expected not in problems[0]):
            sys.exit(f"planted: {what}; expected '{expected}', got {problems}")
    row = {"instructions": 100, "loads": 64, "registers": 40, "met": True}
    for what, known, differs in (("nothing", row, False), ("another compiler", dict(row, instructions=92), False),
                                 ("another kernel", dict(row, instructions=80), True), ("a lost bound", dict(row, met=False), True),
                                 ("a new kernel", None, True)):
        if bool(table_problems({"wide_add": known} if known else {}, {"wide_add": row})) != differs:
            sys.exit(f"planted in model/kernels.json: {what}")
    print(f"{len(plants) + 5} planted cases behave as expected")


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    if "--self-test" in sys.argv:
        return self_test()
    if not arguments or "--help" in sys.argv:
        sys.exit(__doc__)
    functions = parse(disassemble(arguments[0], arguments[1] if len(arguments) > 1 else None))
    problems, results = check(functions, sass_bounds.BOUNDS, sass_bounds.NOT_YET_MET)
    table = table_of(results, registers_of(arguments[0], arguments[1] if len(arguments) > 1 else None))
    if "--write" in sys.argv:
        with open(TABLE, "w") as file:
            json.dump(table, file, indent=1)
            file.write("\n")
    with open(TABLE) as file:
        problems += table_problems(json.load(file)["kernels"], table["kernels"])
    if "--list" in sys.argv:
        for name, r in results.items():
            print(f"{name:32} {r.count:6g} of {sass_bounds.BOUNDS[name].bound:5}" + "".join(f"; {f}" for f in r.faults))
    print("\n".join(problems) if problems else f"{len(results)} kernels checked, {len(sass_bounds.NOT_YET_MET)} not yet met")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
