"""The ten calls with the client that openapi-python-client makes, in the package tally_client."""

import os

from tally_client import Client
from tally_client.api.items import create_item, list_items, show_item
from tally_client.api.polls import create_poll, set_selection
from tally_client.api.votes import cast_vote, cast_votes, set_vote, show_vote, take_back_vote
from tally_client.models import (
    Batch, BatchVote, HeldVote, Item, NewItem, NewPoll, NewVote, Poll, Problem, Selection, SelectionChange,
    TakenVote, Vote, VoteChange, VoteValue,
)

client = Client(base_url=os.environ["SERVER_BASE"])
key = "made-by-openapi-python-client"


def is_a(kind, answer):
    assert type(answer) is kind, answer
    return answer


item = is_a(Item, create_item.sync(client=client, body=NewItem(name="A post", key=key)))
assert item.id == is_a(Item, create_item.sync(client=client, body=NewItem(name="A post", key=key))).id
assert type(item.id) is int and type(item.vote_count) is int
taken = is_a(Problem, create_item.sync(client=client, body=NewItem(name="Another", key=key)))
assert (taken.type_, taken.status) == ("/problems/key-taken", 409), taken

vote = is_a(Vote, cast_vote.sync(f"key:{key}", client=client, body=NewVote(voter_id="ada")))
assert (vote.item_id, vote.vote_count) == (item.id, 1) and not vote.repeated, vote
assert is_a(Vote, cast_vote.sync(item.id, client=client, body=NewVote(voter_id="ada"))).repeated is True
assert is_a(Vote, set_vote.sync(item.id, "ada", client=client, body=VoteChange(value=VoteValue.VALUE_NEGATIVE_1))).vote_count == -1
assert is_a(HeldVote, show_vote.sync(item.id, "ada", client=client)).value == -1
assert is_a(Vote, take_back_vote.sync(item.id, "ada", client=client)).value == 0
none = is_a(Problem, show_vote.sync(item.id, "ada", client=client))
assert none.type_ == "/problems/no-vote" and "holds no vote" in none.detail, none

listed = list_items.sync(client=client, ids=f"key:{key}")
assert [one.id for one in listed.items] == [item.id] and listed.next_after is None

votes = [BatchVote(item_id=item.id, voter_id="bob"), BatchVote(item_id="key:nothing")]
done, refused = cast_votes.sync(client=client, body=Batch(votes=votes)).results
assert is_a(TakenVote, done).status == 201 and done.vote_count == 1, done
assert (is_a(Problem, refused).type_, refused.status) == ("/problems/unknown-item", 404), refused

poll = is_a(Poll, create_poll.sync(client=client, body=NewPoll(title="Lunch?", choices=["Soup", "Salad"])))
chosen = SelectionChange(items=[poll.choices[1].item_id])
assert is_a(Selection, set_selection.sync(poll.id, "ada", client=client, body=chosen)).items == chosen.items

unknown = is_a(Problem, show_item.sync(999_999, client=client))
assert (unknown.type_, unknown.status) == ("/problems/unknown-item", 404), unknown
print("openapi-python-client: the calls do what they say")
