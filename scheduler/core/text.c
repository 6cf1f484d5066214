/* Message texts about workers and leases. */
#include <stdio.h>
#include <string.h>

#include "proto/message/limits.h"
#include "scheduler/core/core_parts.h"
#include "common/base/text/text.h"

char *gp_core_duration(char *text, size_t bytes, int64_t ms)
{
    long long seconds = (long long)(ms / 1000);

    if (seconds < 60)
        snprintf(text, bytes, "%lld s", seconds);
    else if (seconds < 3600)
        snprintf(text, bytes, "%lld m %lld s", seconds / 60, seconds % 60);
    else
        snprintf(text, bytes, "%lld h %lld m", seconds / 3600, seconds / 60 % 60);
    return text;
}

char *gp_core_text_resources(const gp_core *core, char *text, size_t bytes)
{
    char texts[GP_CORE_SLOTS_MAX][GP_RESOURCES_BYTES];
    const char *pointers[GP_CORE_SLOTS_MAX];

    for (uint32_t s = 0; s < core->slot_count; s++)
        pointers[s] = gp_resources_text(&core->slots[s].config.resources, texts[s]);
    return gp_resources_describe(text, bytes, pointers, core->slot_count);
}

char *gp_core_text_workers(char *text, size_t bytes, uint32_t count)
{
    snprintf(text, bytes, "%u worker%s", count, gp_plural(count));
    return text;
}

char *gp_core_text_silence(const gp_core *core, const gp_core_slot *slot, char text[GP_ERROR_MESSAGE_MAX])
{
    static const char *const what[] = {
        [GP_CORE_OURS] = "it will be replaced if this continues",
        [GP_CORE_TRAINING] = "it will be replaced if this exceeds the time limit of a step",
        [GP_CORE_USERS] = "it runs user code and will not be replaced",
    };
    bool mute = core->now_ms - slot->beat_ms >= core->config.suspect_ms;
    char time[32];

    snprintf(text, GP_ERROR_MESSAGE_MAX, "%s for %s; %s",
             mute ? "no heartbeat" : "its current step has not ended",
             gp_core_duration(time, sizeof(time), gp_core_slot_silence(core, slot)), what[slot->work]);
    return text;
}

void gp_core_text_exit(char text[GP_ERROR_MESSAGE_MAX], const gp_core_slot *slot, uint32_t index,
                       const gp_core_event *event)
{
    char how[140], step[48] = "", all[GP_TEXT_WORDS];
    const char *name;

    switch (event->death) {
    case GP_CORE_DIED_SIGNAL:
        name = sigdescr_np(event->number);
        if (slot->process == GP_CORE_DYING && slot->reason[0] != '\0')
            snprintf(how, sizeof(how), "was replaced: %.110s", slot->reason);
        else if (event->out_of_memory)
            snprintf(how, sizeof(how), "was killed because memory ran out (signal %d)", event->number);
        else
            snprintf(how, sizeof(how), "was killed by signal %d (%s)", event->number,
                     name == NULL ? "unknown" : name);
        break;
    case GP_CORE_DIED_EXIT:
        snprintf(how, sizeof(how), "exited with code %d", event->number);
        break;
    case GP_CORE_DIED_UNBORN:
    case GP_CORE_DIED_SHORTAGE:
        snprintf(how, sizeof(how), "could not be started: %s", strerrordesc_np(event->number));
        break;
    case GP_CORE_DIED_UNKNOWN:
        snprintf(how, sizeof(how), "%s",
                 event->out_of_memory ? "was killed because memory ran out" : "exited (exit status unknown)");
        break;
    }
    if (slot->process == GP_CORE_STARTING && event->death != GP_CORE_DIED_UNBORN &&
        event->death != GP_CORE_DIED_SHORTAGE)
        snprintf(step, sizeof(step), " during startup");
    else if (slot->step != 0)
        snprintf(step, sizeof(step), " (it last reported step %llu)", (unsigned long long)slot->step);
    if (event->reason != NULL && event->reason[0] != '\0')
        snprintf(all, sizeof(all), "%s", event->reason);
    else
        snprintf(all, sizeof(all), "%s%s", how, step);
    snprintf(text, GP_ERROR_MESSAGE_MAX, "worker %u (pid %d, %.38s) %s; its log is %.150s", index + 1,
             (int)slot->pid, slot->config.label, all, slot->config.log);
}

void gp_core_text_holders(const gp_core *core, char text[GP_ERROR_MESSAGE_MAX])
{
    size_t used = 0;
    uint32_t coming = 0, returning = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX && used < GP_ERROR_MESSAGE_MAX; i++) {
        const gp_core_lease *lease = &core->leases[i];
        char held[32], count[24];

        if (lease->id == 0)
            continue;
        gp_core_text_workers(count, sizeof(count), (uint32_t)__builtin_popcountll(lease->members));
        used += (size_t)snprintf(text + used, GP_ERROR_MESSAGE_MAX - used,
                                 "%slease %llu (%s, pid %d) has held %s for %s", used == 0 ? "" : ", ",
                                 (unsigned long long)lease->id, lease->description, (int)lease->pid, count,
                                 gp_core_duration(held, sizeof(held), core->now_ms - lease->since_ms));
    }
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX && used < GP_ERROR_MESSAGE_MAX && core->adopting_ms == 0; s++)
        if (core->slots[s].claim != 0)
            used += (size_t)snprintf(
                text + used, GP_ERROR_MESSAGE_MAX - used,
                "%slease %llu of an earlier scheduler (pid %d, not reconnected) has worker %u",
                used == 0 ? "" : ", ", (unsigned long long)core->slots[s].claim,
                (int)core->slots[s].claim_pid, s + 1);
    if (used != 0)
        return;
    if (core->adopting_ms != 0) {
        snprintf(text, GP_ERROR_MESSAGE_MAX,
                 "the scheduler was restarted and waits for reports from workers and clients");
        return;
    }
    for (uint32_t s = 0; s < core->slot_count; s++) {
        coming += gp_core_slot_coming(&core->slots[s]);
        returning += core->slots[s].revoking != 0;
    }
    if (core->kept_ms != 0)
        snprintf(text, GP_ERROR_MESSAGE_MAX,
                 "the scheduler was restarted and waits for clients to claim their workers");
    else if (returning != 0)
        snprintf(text, GP_ERROR_MESSAGE_MAX, "waiting for %u worker%s to restart", returning,
                 returning == 1 ? "" : "s");
    else
        snprintf(text, GP_ERROR_MESSAGE_MAX, "%u worker%s starting", coming, coming == 1 ? " is" : "s are");
}
