#include "scheduler/shell/ownerless.h"

#include <dirent.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "scheduler/process/owner.h"
#include "scheduler/shell/pool_lock.h"

enum { EXIT_MS = 1000 }; /* time for a killed worker to exit */

/* Return whether the recorded pool had an owner that has exited. */
static bool has_lost_owner(const gp_pool_record *record, pid_t *pid)
{
    gp_owner owner;
    const bool exited = gp_owner_open(&owner, record->owner, NULL) == GP_OK && gp_owner_exited(&owner);

    gp_owner_close(&owner);
    *pid = owner.pid;
    return exited;
}

bool ownerless_end(const gp_pool_record *record, gp_orphans *orphans, const gp_paths *paths)
{
    pid_t owner;

    if (!has_lost_owner(record, &owner))
        return false;
    for (uint32_t i = 0; i < orphans->count; i++) {
        struct pollfd ended = { .fd = orphans->workers[i].child.pidfd, .events = POLLIN };

        gp_supervise_kill(&orphans->workers[i].child);
        poll(&ended, 1, EXIT_MS);
    }
    gp_orphans_free(orphans);
    gp_orphans_find(orphans, paths);
    unlink(paths->record);
    gp_log_event(GP_LOG_INFO, "owner-exited",
                 GP_LOG_WITH({ "pool", .text = paths->pool }, { "process", .number = owner }),
                 "the scheduler of pool %s crashed and the owner of the pool has exited; ended the pool",
                 paths->pool);
    return true;
}

/* Read the record of a pool. Return whether its owner has exited. */
static bool is_ownerless(gp_pool_record *record, const gp_paths *paths)
{
    pid_t owner;

    *record = (gp_pool_record){ .process_env = NULL };
    return gp_pool_record_read(record, paths) && has_lost_owner(record, &owner);
}

/* End a pool unless a scheduler runs. A record that is read under the lock is final. */
static void end_other(const gp_paths *paths)
{
    gp_pool_lock lock = { .fd = -1 };
    gp_pool_record record;
    gp_orphans *orphans = gp_calloc(1, sizeof(*orphans));

    if (orphans != NULL && gp_pool_lock_take(&lock, paths, NULL) == GP_OK) {
        if (is_ownerless(&record, paths)) {
            const gp_owner owner = { .fd = -1, .temporary = record.temporary };

            gp_orphans_find(orphans, paths);
            ownerless_end(&record, orphans, paths);
            if (orphans->count == 0)
                gp_owner_remove_files(&owner, paths);
            gp_orphans_free(orphans);
        } else if (lock.epoch == 1 && access(paths->record, F_OK) != 0) {
            /* another scheduler ended the pool, and the lock is the first file of a new one */
            gp_owner_remove_files(&(gp_owner){ .fd = -1, .temporary = true }, paths);
        }
        gp_free(record.process_env);
        gp_pool_lock_release(&lock);
    }
    gp_free(orphans);
}

void ownerless_end_others(const gp_paths *own)
{
    DIR *all = opendir(own->runtime);
    gp_pool_record record;
    gp_paths paths;

    for (const struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, own->pool) == 0 ||
            gp_paths_find(&paths, entry->d_name, NULL) != GP_OK || access(paths.record, F_OK) != 0)
            continue;
        if (is_ownerless(&record, &paths))
            end_other(&paths);
        gp_free(record.process_env);
    }
    if (all != NULL)
        closedir(all);
}
