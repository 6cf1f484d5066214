/* Waits that detect failed members, and the end of a group.
 *
 * A wait spins for some microseconds if every rank has its own core, then sleeps SLICE_NS at a
 * time. After a slice without progress it checks which members have exited. The first rank that
 * detects a failure writes the verdict into the control segment and wakes all ranks. The verdict
 * never changes afterwards, so all ranks report the same cause.
 *
 * A count that was reached stays valid even if the group ends at the same time: each wait checks
 * the word once more after it has read the verdict. A rank closes the barrier before that last
 * check. Therefore, if a barrier lets one rank pass, it lets all live ranks pass; if it rejects
 * one, it rejects all. */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "worker/comm/process.h"
#include "worker/comm/shm.h"

/* busy-wait iterations before sleeping, and sleep time in nanoseconds */
enum { SPINS = 4000, SLICE_NS = 5000000 };

static void wake(shm_word *word)
{
    syscall(SYS_futex, &word->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- ending a group ---- */

/* Forbid further arrivals, so that all ranks read the same arrival count. */
static void close_barrier(shm_control *control)
{
    atomic_fetch_or(&control->arrived.value, SHM_CLOSED);
}

/* Write the verdict unless there is one, close the barrier and wake all ranks. The verdict word
 * holds the reason, the rank concerned and the rank that waited for it. */
static void control_end(shm_control *control, shm_end end, uint32_t rank, uint32_t waiter)
{
    uint32_t none = 0;

    atomic_compare_exchange_strong(&control->verdict, &none, waiter << 16 | (uint32_t)end << 8 | rank);
    close_barrier(control);
    wake(&control->arrived);
    for (uint32_t k = 0; k < control->world; k++)
        wake(&control->lines[k].wakeup_fd);
}

void gp_shm_end(shm_control *control, shm_end end, uint32_t rank)
{
    control_end(control, end, rank, 0);
}

gp_status gp_shm_verdict(const gp_comm *comm, gp_error *err)
{
    uint32_t verdict = atomic_load(&comm->control->verdict);
    /* a peer wrote this value, so check the range */
    uint32_t rank = (verdict & 0xff) < comm->world ? (verdict & 0xff) : 0;
    uint32_t waiter = verdict >> 16 < comm->world ? verdict >> 16 : 0;
    const gp_comm_member *member = &comm->peers[rank].member;

    if (verdict == 0)
        return GP_OK;
    switch ((shm_end)(verdict >> 8 & 0xff)) {
    case SHM_DIED:
        return gp_fail(err, GP_EPEER,
                       "worker %u (rank %u, pid %d) exited; form the next generation without it",
                       member->index, rank, (int)member->pid);
    case SHM_LEFT:
        return gp_fail(err, GP_EPEER, "worker %u (rank %u, pid %d) left the group during a collective",
                       member->index, rank, (int)member->pid);
    case SHM_MIXED_UP:
        return gp_fail(err, GP_ESTATE,
                       "worker %u (rank %u, pid %d) is in another collective than its neighbor: all ranks "
                       "must call the same collectives in the same order with equal sizes",
                       member->index, rank, (int)member->pid);
    case SHM_MALFORMED:
        return gp_fail(err, GP_EPROTO, "malformed message from worker %u (rank %u, pid %d)", member->index,
                       rank, (int)member->pid);
    case SHM_OVER:
        return gp_fail(err, GP_ESTATE,
                       "worker %u (pid %d) has finished, but worker %u waits for it: all ranks must call the "
                       "same collectives, and each receive needs a send",
                       member->index, (int)member->pid, comm->peers[waiter].member.index);
    case SHM_FULL:
        return gp_fail(
            err, GP_ESTATE,
            "deadlock: worker %u (rank %u, pid %d) and its peers wait to send to each other, but "
            "have no room or memory for unreceived messages; receive before more than %zu bytes are sent",
            member->index, rank, (int)member->pid, comm->queue_bytes_max);
    default:
        return gp_fail(err, GP_ECANCELED, "worker %u (rank %u, pid %d) aborted generation %u of the group",
                       member->index, rank, (int)member->pid, comm->generation);
    }
}

/* Return true if `value` has reached `target`. Both wrap modulo 2^31; bit 31 is SHM_CLOSED. */
static bool is_at(uint32_t value, uint32_t target)
{
    return (int32_t)((value - target) << 1) >= 0;
}

static bool reached(const shm_word *word, uint32_t target)
{
    return is_at(atomic_load_explicit(&word->value, memory_order_acquire), target);
}

/* Return true if another member left the group. If it exited without leaving, end the group. */
static bool has_left(gp_comm *comm, uint32_t rank)
{
    const _Atomic uint32_t *left = &comm->control->lines[rank].left;

    if (atomic_load(left) != 0)
        return true;
    if (!gp_process_dead(comm->peers[rank].pidfd))
        return false;
    /* The member may have left the group between the two checks. That exit is then no failure. */
    if (atomic_load(left) != 0)
        return true;
    gp_shm_end(comm->control, SHM_DIED, rank);
    return false;
}

void gp_shm_check(gp_comm *comm, const shm_word *word, uint32_t target, uint32_t awaited, bool waits)
{
    uint32_t others = 0, gone = 0, gone_rank = 0;
    shm_end how = SHM_LEFT;

    for (uint32_t k = 0; k < comm->world; k++) {
        bool left;

        if (k == comm->rank)
            continue;
        others++;
        left = has_left(comm, k);
        if (left ||
            (waits && comm->section != 0 && atomic_load(&comm->control->lines[k].over) >= comm->section)) {
            gone++;
            gone_rank = k;
            how = left ? SHM_LEFT : SHM_OVER;
            if (awaited == k || awaited == SHM_ALL)
                break;
        }
    }
    /* The awaited member may have done the work before leaving, after the last check of the
     * word. */
    if (gone == 0 || reached(word, target))
        return;
    if (awaited == gone_rank || awaited == SHM_ALL || (awaited == GP_COMM_ANY && gone == others))
        control_end(comm->control, how, gone_rank, comm->rank);
}

gp_status gp_comm_check(gp_comm *comm, bool *left, gp_error *err)
{
    gp_status status = gp_shm_check_formed(comm, err);

    *left = false;
    if (status != GP_OK)
        return status;
    for (uint32_t k = 0; k < comm->world; k++)
        *left = (k != comm->rank && has_left(comm, k)) || *left;
    return gp_shm_verdict(comm, err);
}

/* ---- sections ---- */

void gp_comm_enter(gp_comm *comm, uint64_t section)
{
    if (comm->world > 0)
        comm->section = section;
}

void gp_comm_leave(gp_comm *comm)
{
    if (comm->world == 0)
        return;
    /* This store follows all messages and arrivals of the section, so a rank that reads it also
     * sees those. */
    atomic_store(&comm->control->lines[comm->rank].over, comm->section);
    comm->section = 0;
}

/* ---- waiting ---- */

/* Wait in sleep slices, and check for failed members after each slice without a wakeup. */
static gp_status wait_slowly(gp_comm *comm, shm_word *word, uint32_t target, uint32_t awaited, gp_error *err)
{
    for (;;) {
        gp_status status;

        if (reached(word, target))
            return GP_OK;
        status = gp_shm_verdict(comm, err);
        if (status != GP_OK) {
            /* the rank that ended the group may not have closed the barrier yet */
            close_barrier(comm->control);
            return reached(word, target) ? GP_OK : status;
        }
        /* Sleep for at most one slice. */
        struct timespec slice = { .tv_nsec = SLICE_NS };
        bool idle = false;

        atomic_fetch_add(&word->sleepers, 1);
        uint32_t seen = atomic_load(&word->value);

        if (!is_at(seen, target))
            idle = syscall(SYS_futex, &word->value, FUTEX_WAIT, seen, &slice, NULL, 0) != 0 &&
                   errno == ETIMEDOUT;
        atomic_fetch_sub(&word->sleepers, 1);
        if (idle)
            gp_shm_check(comm, word, target, awaited, true);
    }
}

gp_status gp_shm_wait(gp_comm *comm, shm_word *word, uint32_t target, uint32_t awaited, gp_error *err)
{
    uint64_t waited_ns;
    int64_t began_ns;
    gp_status status = GP_OK;
    int spins = comm->spin ? SPINS : 0;

    if (reached(word, target))
        return GP_OK;
    began_ns = gp_now_ns();
    while (spins > 0 && !reached(word, target)) {
        gp_relax();
        spins--;
    }
    if (spins == 0)
        status = wait_slowly(comm, word, target, awaited, err);
    waited_ns = atomic_load_explicit(&comm->wait_ns, memory_order_relaxed);
    waited_ns += (uint64_t)(gp_now_ns() - began_ns);
    atomic_store_explicit(&comm->wait_ns, waited_ns, memory_order_relaxed);
    return status;
}

void gp_shm_post(shm_word *word)
{
    atomic_fetch_add(&word->value, 1);
    if (atomic_load(&word->sleepers) != 0)
        wake(word);
}

gp_status gp_shm_sync(gp_comm *comm, uint64_t fingerprint, gp_error *err)
{
    shm_control *control = comm->control;
    uint32_t world = comm->world, neighbour = (comm->rank + 1) % world;
    uint32_t target = (uint32_t)((comm->barriers + 1) * world);
    unsigned at = comm->barriers % CALLS;
    gp_status status = gp_shm_verdict(comm, err);
    /* expected value for the first arrival; the exchange below corrects it */
    uint32_t count = (target - world) & ~SHM_CLOSED;

    if (status != GP_OK)
        return status;
    atomic_store_explicit(&control->lines[comm->rank].calls[at], fingerprint, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&control->arrived.value, &count, (count + 1) & ~SHM_CLOSED))
        if ((count & SHM_CLOSED) != 0) {
            /* no effect, because a closed barrier implies a verdict */
            gp_shm_end(control, SHM_MALFORMED, comm->rank);
            return gp_shm_verdict(comm, err);
        }
    /* Only the last rank wakes the others: no rank can proceed earlier. */
    if (((count + 1 - target) & ~SHM_CLOSED) == 0) {
        if (atomic_load(&control->arrived.sleepers) != 0)
            wake(&control->arrived);
    } else {
        status = gp_shm_wait(comm, &control->arrived, target, SHM_ALL, err);
        if (status != GP_OK)
            return status;
    }
    comm->barriers++;
    /* The neighbour cannot have overwritten this entry: it would first have to pass barrier + CALLS
     * - 1, which this rank has not entered. */
    if (atomic_load_explicit(&control->lines[neighbour].calls[at], memory_order_relaxed) != fingerprint) {
        gp_shm_end(control, SHM_MIXED_UP, comm->rank);
        return gp_shm_verdict(comm, err);
    }
    return GP_OK;
}
