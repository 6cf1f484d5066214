/* Ring buffers in shared memory between client and worker (link.h). */
#include "proto/task/link.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

#define LINK_MAGIC 0x4b4c5047u /* "GPLK" in memory */
#define LINK_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

enum { AWAKE, SLEEPS, SLEEPS_PATIENTLY }; /* client_sleeps values */

enum {
    LINE = 64,
    PAD = UINT16_MAX, /* record kind that fills a ring's end */
    RING_MASK = GP_LINK_RING_BYTES - 1,
    FUTEX_SLICE_NS = 100000000, /* longest futex wait; bounds the delay if a wake-up is lost */
};

/* Ring positions only grow; a byte is stored at position & RING_MASK. */
typedef struct link_ring {
    _Alignas(LINE) _Atomic uint64_t written; /* written by the producer */
    _Alignas(LINE) _Atomic uint64_t read;    /* written by the consumer */
} link_ring;

/* Shared segment layout. Fields written by different sides lie on different cache lines. */
typedef struct link_segment {
    uint32_t magic, version;
    uint64_t bytes;
    link_ring calls, answers;
    _Alignas(LINE) _Atomic uint32_t worker_futex; /* counts wake-ups of the worker */
    _Atomic uint32_t worker_sleeps;
    _Atomic int32_t worker_core;
    _Alignas(LINE) _Atomic uint32_t client_sleeps;
    _Atomic int32_t client_core;
    _Atomic uint64_t cancel;
    _Alignas(LINE) _Atomic uint64_t running;
    _Atomic uint32_t progress;
    _Alignas(4096) unsigned char call_bytes[GP_LINK_RING_BYTES];
    unsigned char answer_bytes[GP_LINK_RING_BYTES];
} link_segment;

/* PROTOCOL.md documents these offsets. */
_Static_assert(offsetof(link_segment, calls) == 64 && offsetof(link_segment, answers) == 192 &&
                   offsetof(link_segment, worker_futex) == 320 &&
                   offsetof(link_segment, client_sleeps) == 384 && offsetof(link_segment, cancel) == 392 &&
                   offsetof(link_segment, running) == 448 && offsetof(link_segment, progress) == 456 &&
                   offsetof(link_segment, call_bytes) == 4096 &&
                   sizeof(link_segment) == 4096 + 2 * GP_LINK_RING_BYTES,
               "the layout of the segment is part of the protocol");

/* This side's private state for a ring. */
typedef struct link_end {
    link_ring *ring;
    unsigned char *bytes;

    /* producer: end of reserved records; consumer: start of the oldest record not dropped */
    uint64_t position;
    uint64_t seen; /* last value read of ring->read (producer) or ring->written (consumer) */
    uint32_t next; /* consumer: current record's size */
    uint64_t last; /* producer: start of the last reserved record */
} link_end;

struct gp_link {
    link_segment *segment;
    link_end out, in;
    bool worker;
    int wakeup_fd; /* worker: client's wakeup eventfd */
    bool spin;
    gp_spin spin_budget;
    uint32_t futex_seen; /* worker: futex value before it last looked for work */
};

/* Common header of gp_call and gp_answer. */
typedef struct link_record {
    uint32_t bytes;
    uint16_t kind;
    uint16_t flags;
} link_record;

/* ---- opening ---- */

/* Map the segment and assign the rings to this side's directions. */
static gp_status link_wrap(gp_link **out, int fd, bool worker, gp_error *err)
{
    gp_link *link = gp_calloc(1, sizeof(*link));
    void *memory;

    if (link == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a link");
    memory = mmap(NULL, sizeof(link_segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        gp_free(link);
        return gp_fail_errno(err, GP_ENOMEM, "cannot map the %zu bytes of a link", sizeof(link_segment));
    }
    link->segment = memory;
    link->worker = worker;
    link->wakeup_fd = -1;
    link_end calls = { .ring = &link->segment->calls, .bytes = link->segment->call_bytes };
    link_end answers = { .ring = &link->segment->answers, .bytes = link->segment->answer_bytes };

    link->out = worker ? answers : calls;
    link->in = worker ? calls : answers;
    *out = link;
    return GP_OK;
}

gp_status gp_link_new(gp_link **out, int *fd, gp_error *err)
{
    int segment = memfd_create("gradpool-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    gp_status status;

    if (segment < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create shared memory for a link");
    if (ftruncate(segment, sizeof(link_segment)) != 0 || fcntl(segment, F_ADD_SEALS, LINK_SEALS) != 0) {
        status =
            gp_fail_errno(err, GP_ENOMEM, "cannot allocate the %zu bytes of a link", sizeof(link_segment));
        close(segment);
        return status;
    }
    status = link_wrap(out, segment, false, err);
    if (status != GP_OK) {
        close(segment);
        return status;
    }
    link_segment *fresh = (*out)->segment;

    fresh->magic = LINK_MAGIC;
    fresh->version = GP_LINK_VERSION;
    fresh->bytes = sizeof(link_segment);
    atomic_store(&fresh->worker_core, -1);
    atomic_store(&fresh->client_core, sched_getcpu());
    *fd = segment;
    return GP_OK;
}

gp_status gp_link_map(gp_link **out, int fd, int wakeup_fd, bool spin, gp_error *err)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    gp_status status;

    if (seals < 0 || (seals & LINK_SEALS) != LINK_SEALS)
        return gp_fail(err, GP_EPROTO, "the shared memory of a link is not sealed against resizing");
    if (fstat(fd, &info) != 0 || info.st_size != (off_t)sizeof(link_segment))
        return gp_fail(err, GP_EVERSION,
                       "the shared memory of a link has %lld bytes, must have %zu; install the same version "
                       "of gradpool on both sides",
                       (long long)info.st_size, sizeof(link_segment));
    status = link_wrap(out, fd, true, err);
    if (status != GP_OK)
        return status;
    if ((*out)->segment->magic != LINK_MAGIC || (*out)->segment->version != GP_LINK_VERSION) {
        status = gp_fail(err, GP_EVERSION,
                         "link version %u, must be %d; install the same version of gradpool on both sides",
                         (*out)->segment->version, GP_LINK_VERSION);
        gp_link_free(*out);
        *out = NULL;
        return status;
    }
    (*out)->wakeup_fd = wakeup_fd;
    (*out)->spin = spin;
    atomic_store(&(*out)->segment->worker_core, sched_getcpu());
    return GP_OK;
}

void gp_link_free(gp_link *link)
{
    if (link == NULL)
        return;
    munmap(link->segment, sizeof(link_segment));
    gp_free(link);
}

/* ---- producing ---- */

/* Return the free bytes in a ring. Reload the peer's position only if the cached one does not
 * suffice. */
static uint64_t room(link_end *end, uint64_t needed)
{
    uint64_t used = end->position - end->seen;

    if (used + needed > GP_LINK_RING_BYTES) {
        end->seen = atomic_load_explicit(&end->ring->read, memory_order_acquire);
        used = end->position - end->seen;
    }

    /* an invalid `read` leaves no room */
    return used > GP_LINK_RING_BYTES ? 0 : GP_LINK_RING_BYTES - used;
}

void *gp_link_reserve(gp_link *link, size_t payload_bytes)
{
    link_end *out = &link->out;
    uint64_t bytes = (sizeof(gp_call) + payload_bytes + LINE - 1) & ~(uint64_t)(LINE - 1);
    uint64_t to_end = GP_LINK_RING_BYTES - (out->position & RING_MASK);
    uint64_t pad = bytes > to_end ? to_end : 0;

    if (payload_bytes > GP_LINK_INLINE_MAX || room(out, pad + bytes) < pad + bytes)
        return NULL;
    if (pad != 0) {
        link_record *filler = (void *)(out->bytes + (out->position & RING_MASK));

        *filler = (link_record){ .bytes = (uint32_t)pad, .kind = PAD };
        out->position += pad;
    }
    gp_call *record = (void *)(out->bytes + (out->position & RING_MASK));

    /* gp_call and gp_answer both have 64 bytes and start with `bytes`. */
    memset((void *)record, 0, sizeof(*record));
    record->bytes = (uint32_t)bytes;
    if (link->worker)
        ((gp_answer *)(void *)record)->payload_bytes = payload_bytes;
    else
        record->payload_bytes = payload_bytes;
    out->last = out->position;
    out->position += bytes;
    return record;
}

void gp_link_commit(gp_link *link)
{
    atomic_store_explicit(&link->out.ring->written, link->out.position, memory_order_release);
}

uint64_t gp_link_unread(const gp_link *link)
{
    return link->out.position - atomic_load_explicit(&link->out.ring->read, memory_order_acquire);
}

void gp_link_ring(gp_link *link)
{
    link_segment *segment = link->segment;

    atomic_thread_fence(
        memory_order_seq_cst); /* Order the commit before the check whether the peer sleeps. */
    if (link->worker) {
        if (atomic_load_explicit(&segment->client_sleeps, memory_order_relaxed) != 0 &&
            atomic_exchange(&segment->client_sleeps, 0) != 0)
            /* EAGAIN: the counter is at the maximum, so the client is awake */
            eventfd_write(link->wakeup_fd, 1);
    } else if (atomic_load_explicit(&segment->worker_sleeps, memory_order_relaxed) != 0 &&
               atomic_exchange(&segment->worker_sleeps, 0) != 0) {
        gp_link_wake(link);
    }
}

/* ---- consuming ---- */

static gp_status ring_broken(gp_error *err, const char *how)
{
    return gp_fail(err, GP_EPROTO, "malformed record in a link: %s", how);
}

/* Check the record header at `at` and set *bytes to the record size. The size is read from the
 * segment once, because the peer can change it at any time. */
static gp_status record_check(const gp_link *link, const unsigned char *at, uint64_t available,
                              uint32_t *bytes, gp_error *err)
{
    const volatile link_record *record = (const volatile void *)at;
    uint64_t to_end = GP_LINK_RING_BYTES - (link->in.position & RING_MASK);
    uint64_t payload, blob;

    *bytes = record->bytes;
    if (*bytes < LINE || *bytes % LINE != 0 || *bytes > available || *bytes > to_end)
        return ring_broken(err, "invalid record size");
    if (record->kind == PAD)
        return GP_OK;
    payload = link->worker ? ((const gp_call *)(const void *)at)->payload_bytes
                           : ((const gp_answer *)(const void *)at)->payload_bytes;
    blob = link->worker ? ((const gp_call *)(const void *)at)->blob
                        : ((const gp_answer *)(const void *)at)->blob;
    if (blob == 0 ? payload > *bytes - LINE : payload > GP_LINK_BLOB_BYTES_MAX)
        return ring_broken(err, "invalid payload size");
    return GP_OK;
}

gp_status gp_link_next(gp_link *link, const void **record, gp_error *err)
{
    link_end *in = &link->in;

    for (;;) {
        if (in->seen == in->position) {
            in->seen = atomic_load_explicit(&in->ring->written, memory_order_acquire);
            if (in->seen == in->position)
                return GP_ETIMEDOUT;
        }
        uint64_t available = in->seen - in->position;
        const unsigned char *at = in->bytes + (in->position & RING_MASK);
        gp_status status;

        if (available > GP_LINK_RING_BYTES || available % LINE != 0)
            return ring_broken(err, "positions");
        status = record_check(link, at, available, &in->next, err);
        if (status != GP_OK)
            return status;
        if (((const link_record *)(const void *)at)->kind != PAD) {
            *record = at;
            return GP_OK;
        }
        gp_link_drop(link);
    }
}

size_t gp_link_payload_max(const gp_link *link)
{
    return link->in.next - LINE;
}

void gp_link_drop(gp_link *link)
{
    link->in.position += link->in.next;
    link->in.next = 0;
    atomic_store_explicit(&link->in.ring->read, link->in.position, memory_order_release);
}

/* ---- calls ---- */

bool gp_call_take(const gp_call *call)
{
    uint32_t queued = GP_CALL_QUEUED;

    return atomic_compare_exchange_strong((_Atomic uint32_t *)&call->state, &queued, GP_CALL_TAKEN);
}

uint64_t gp_link_position(const gp_link *link)
{
    return link->out.last;
}

bool gp_link_revoke(gp_link *link, uint64_t position)
{
    uint64_t read = atomic_load_explicit(&link->out.ring->read, memory_order_acquire);
    uint32_t queued = GP_CALL_QUEUED;
    gp_call *call = (void *)(link->out.bytes + (position & RING_MASK));

    /* The call has been dropped, and the memory may hold another call by now. */
    if (position - read >= GP_LINK_RING_BYTES || position >= link->out.position)
        return false;
    return atomic_compare_exchange_strong(&call->state, &queued, GP_CALL_REVOKED);
}

bool gp_link_ended(const gp_link *link, uint64_t position)
{
    uint64_t read = atomic_load_explicit(&link->out.ring->read, memory_order_acquire);

    /* the worker advances `read` after it has finished the call */
    return position - read >= GP_LINK_RING_BYTES;
}

bool gp_link_begun(const gp_link *link, uint64_t position)
{
    const gp_call *call = (const void *)(link->out.bytes + (position & RING_MASK));

    return gp_link_ended(link, position) || atomic_load_explicit((const _Atomic uint32_t *)&call->state,
                                                                 memory_order_acquire) == GP_CALL_TAKEN;
}

void gp_link_set_running(gp_link *link, uint64_t id)
{
    atomic_store_explicit(&link->segment->progress, 0, memory_order_relaxed);
    atomic_store_explicit(&link->segment->running, id, memory_order_release);
}

uint64_t gp_link_running(const gp_link *link)
{
    return atomic_load_explicit(&link->segment->running, memory_order_acquire);
}

void gp_link_set_progress(gp_link *link, uint32_t iteration)
{
    atomic_store_explicit(&link->segment->progress, iteration, memory_order_relaxed);
}

uint32_t gp_link_progress(const gp_link *link)
{
    return atomic_load_explicit(&link->segment->progress, memory_order_relaxed);
}

void gp_link_cancel(gp_link *link, uint64_t id)
{
    atomic_store(&link->segment->cancel, id);
}

bool gp_link_canceled(const gp_link *link)
{
    uint64_t running = atomic_load_explicit(&link->segment->running, memory_order_relaxed);

    return running != 0 && atomic_load_explicit(&link->segment->cancel, memory_order_relaxed) == running;
}

/* ---- waiting ---- */

enum { SPIN_RETRY = 64 }; /* after this number of waits without spinning, try one spin */

int64_t gp_spin_begin(gp_spin *spin)
{
    if (spin->ns == 0 && ++spin->tries >= SPIN_RETRY) {
        spin->tries = 0;
        return GP_LINK_SPIN_NS;
    }
    return spin->ns;
}

void gp_spin_end(gp_spin *spin, int64_t waited_ns)
{
    /* A sleeping side notices an event late. A wait that took up to twice the spin time would
     * therefore have been short with spinning. */
    if (waited_ns <= 2 * GP_LINK_SPIN_NS)
        spin->ns = GP_LINK_SPIN_NS;
    else
        spin->ns = spin->ns > 2000 ? spin->ns / 4 : 0;
}

/* Return whether a record is pending. */
static bool work_waits(const gp_link *link)
{
    return atomic_load_explicit(&link->in.ring->written, memory_order_acquire) != link->in.position;
}

/* Spin for up to `ns`. Return true if work or a wake-up arrived. */
static bool worker_spin(gp_link *link, int64_t begin_ns, int64_t ns)
{
    const link_segment *segment = link->segment;

    for (uint32_t turn = 1; !work_waits(link); turn++) {
        if (atomic_load_explicit(&segment->worker_futex, memory_order_relaxed) != link->futex_seen)
            return true;
        if (turn % 32 == 0 && gp_now_ns() - begin_ns >= ns)
            return false;
        gp_relax();
    }
    return true;
}

/* Sleep on the futex until a wake-up, or for at most `left` ns, limited to FUTEX_SLICE_NS. */
static void worker_sleep(gp_link *link, int64_t left)
{
    link_segment *segment = link->segment;
    struct timespec slice;

    left = left > FUTEX_SLICE_NS ? FUTEX_SLICE_NS : left;
    atomic_store(&segment->worker_sleeps, 1);
    atomic_thread_fence(memory_order_seq_cst);

    /* checked after worker_sleeps was set: a client that commits from now on sends a wake-up */
    if (!work_waits(link)) {
        slice = (struct timespec){ .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
        syscall(SYS_futex, &segment->worker_futex, FUTEX_WAIT, link->futex_seen, &slice, NULL, 0);
    }
    atomic_store(&segment->worker_sleeps, 0);
}

void gp_link_wait(gp_link *link, int64_t timeout_ns)
{
    link_segment *segment = link->segment;
    int core = sched_getcpu();
    int64_t begin_ns, spin_ns;

    atomic_store_explicit(&segment->worker_core, core, memory_order_relaxed);
    if (work_waits(link) || timeout_ns == 0)
        return;
    begin_ns = gp_now_ns();
    spin_ns = link->spin && gp_link_peer_core(link) != core ? gp_spin_begin(&link->spin_budget) : 0;
    if (spin_ns == 0 || !worker_spin(link, begin_ns, spin_ns)) {
        int64_t end_ns = timeout_ns < 0 ? INT64_MAX : begin_ns + timeout_ns, now = begin_ns;

        while (!work_waits(link) && atomic_load(&segment->worker_futex) == link->futex_seen && now < end_ns) {
            worker_sleep(link, end_ns - now);
            now = gp_now_ns();
        }
        gp_spin_end(&link->spin_budget, now - begin_ns);
    } else {
        gp_spin_end(&link->spin_budget, 0);
    }
    link->futex_seen = atomic_load(&segment->worker_futex);
}

void gp_link_wake(gp_link *link)
{
    atomic_fetch_add(&link->segment->worker_futex, 1);
    syscall(SYS_futex, &link->segment->worker_futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool gp_link_pending(const gp_link *link)
{
    return work_waits(link);
}

bool gp_link_patient(const gp_link *link)
{
    return atomic_load_explicit(&link->segment->client_sleeps, memory_order_relaxed) == SLEEPS_PATIENTLY;
}

bool gp_link_asleep(gp_link *link, bool patient)
{
    atomic_store(&link->segment->client_sleeps, patient ? SLEEPS_PATIENTLY : SLEEPS);
    atomic_thread_fence(memory_order_seq_cst);
    return !work_waits(link);
}

void gp_link_awake(gp_link *link)
{
    atomic_store_explicit(&link->segment->client_sleeps, 0, memory_order_relaxed);
    atomic_store_explicit(&link->segment->client_core, sched_getcpu(), memory_order_relaxed);
}

int gp_link_peer_core(const gp_link *link)
{
    return atomic_load_explicit(link->worker ? &link->segment->client_core : &link->segment->worker_core,
                                memory_order_relaxed);
}

bool gp_link_idle(const gp_link *link)
{
    return atomic_load_explicit(&link->out.ring->read, memory_order_acquire) == link->out.position;
}
