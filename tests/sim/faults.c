/* Effects of the faults in a script. faults.def lists them. */
#include "tests/sim/cluster.h"

static void kill_machine(sim *s, uint32_t after_ms)
{
    for (uint32_t i = 0; i < s->process_count; i++)
        sim_process_dies(s, &s->processes[i], GP_CORE_DIED_SIGNAL, 9);
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        if (s->clients[i].state != SIM_AWAY)
            sim_client_leaves(s, &s->clients[i]);
    if (s->up) {
        sim_kill_scheduler(s, after_ms);
    }
    sim_jobs_crash(s, true);
    sim_sweep_dies(s, true);
}

void sim_take_down(sim *s, bool when_idle, uint32_t after_ms)
{
    gp_core_event end = { .kind = GP_CORE_EVENT_SHUTDOWN, .when_idle = when_idle };
    gp_jobs_event jobs = { .kind = when_idle ? GP_JOBS_EVENT_HOLD : GP_JOBS_EVENT_STOP, .count = 1 };

    if (!s->up || s->downed)
        return;
    s->downed = true;
    s->fuse_ms = after_ms;
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        s->clients[i].whole = false;
    sim_jobs_step(s, jobs);
    if (s->up)
        sim_step_core(s, &end);
}

static void stop(sim *s, sim_gate *gate, uint32_t ms)
{
    if (gate->until_us <= s->now_us) /* a process that is already suspended resumes as planned */
        gate->until_us = s->now_us + (int64_t)ms * MS;
}

static void cut(sim *s, int64_t *out_us, int64_t *in_us, uint32_t ms)
{
    int64_t until_us = s->now_us + (int64_t)ms * MS;

    *out_us = *out_us > until_us ? *out_us : until_us;
    *in_us = *in_us > until_us ? *in_us : until_us;
}

static void strike_worker(sim *s, const sim_fault *fault, sim_process *process)
{
    if (process == NULL)
        return;
    sim_lease_hurt(s, process->lease);
    switch (fault->kind) {
    case SIM_KILL_WORKER:
        sim_process_dies(s, process, GP_CORE_DIED_SIGNAL, 9);
        break;
    case SIM_FUSE_WORKER:
        process->fuse = fault->amount;
        break;
    case SIM_STOP_WORKER:
        stop(s, &process->gate, fault->amount);
        break;
    case SIM_CUT_WORKER:
        cut(s, &process->out_us, &process->in_us, fault->amount);
        break;
    case SIM_BREAK_WORKER:
        sim_process_breaks(s, process);
        break;
    default:
        process->twice += fault->amount;
    }
}

static void strike_client(sim *s, const sim_fault *fault, sim_client *client)
{
    if (client->state == SIM_AWAY)
        return;
    client->whole = false;
    switch (fault->kind) {
    case SIM_KILL_CLIENT:
        sim_client_leaves(s, client);
        break;
    case SIM_FUSE_CLIENT:
        client->fuse = fault->amount;
        break;
    case SIM_STOP_CLIENT:
        stop(s, &client->gate, fault->amount);
        break;
    case SIM_CUT_CLIENT:
        cut(s, &client->out_us, &client->in_us, fault->amount);
        break;
    default:
        sim_client_breaks(s, client);
    }
}

void sim_strike(sim *s, const sim_fault *fault)
{
    s->tally.faults++;
    s->tally.of[fault->kind]++;
    switch (fault->kind) {
    case SIM_KILL_WORKER:
    case SIM_FUSE_WORKER:
    case SIM_STOP_WORKER:
    case SIM_CUT_WORKER:
    case SIM_BREAK_WORKER:
    case SIM_DUPLICATE:
        strike_worker(s, fault, sim_process_in(s, fault->target % s->script.slots));
        break;
    case SIM_KILL_CLIENT:
    case SIM_FUSE_CLIENT:
    case SIM_STOP_CLIENT:
    case SIM_CUT_CLIENT:
    case SIM_BREAK_CLIENT:
        strike_client(s, fault, &s->clients[fault->target % SIM_CLIENTS]);
        break;
    case SIM_BREAK_SUBMITTER:
        sim_submitter_breaks(s, &s->submitters[fault->target % SIM_SUBMITTERS]);
        break;
    case SIM_STOP_SUBMITTER:
        stop(s, &s->submitters[fault->target % SIM_SUBMITTERS].gate, fault->amount);
        break;
    case SIM_KILL_JOB:
        sim_job_killed(s, fault->target);
        break;
    case SIM_KILL_SWEEP:
    case SIM_HALT_SWEEP:
        sim_sweep_struck(s, fault->kind == SIM_HALT_SWEEP, fault->amount);
        break;
    case SIM_SLOW_NETWORK:
        s->slow_us = (int64_t)fault->target * MS;
        s->slow_until_us = s->now_us + (int64_t)fault->amount * MS;
        break;
    case SIM_SLOW_DISK:
        s->disk_slow_us = (int64_t)fault->target * MS;
        s->disk_slow_until_us = s->now_us + (int64_t)fault->amount * MS;
        break;
    case SIM_FAIL_DISK:
        s->disk_fails = true;
        s->disk_keeps = fault->amount;
        break;
    case SIM_JUMP_CLOCK:
        s->wall_ms += (fault->target == 0 ? 1 : -1) * (int64_t)fault->amount * 3600 * 1000;
        break;
    case SIM_STOP_SCHEDULER:
        if (s->up)
            stop(s, &s->gate, fault->amount);
        break;
    case SIM_KILL_SCHEDULER:
        sim_kill_scheduler(s, fault->amount);
        break;
    case SIM_FUSE_SCHEDULER:
        if (s->up && !s->downed) {
            s->fuse = fault->target;
            s->fuse_ms = fault->amount;
        }
        break;
    case SIM_KILL_MACHINE:
        kill_machine(s, fault->amount);
        break;
    case SIM_TAKE_DOWN:
        sim_take_down(s, fault->target % 2 == 1, fault->amount);
        break;
    case SIM_FAULT_KINDS:
        break;
    }
}
