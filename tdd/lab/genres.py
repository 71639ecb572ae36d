"""Genres of synthetic documents: openings, bodies and closings of sentences with slots.

A document of a genre is one opening, some of the body's sentences in random order, and one closing. Slots are
those of `tdd.lab.vocabulary`; `{symbol:key}` keeps its value wherever the same slot recurs in one document.
"""

from __future__ import annotations

import dataclasses

__all__ = ["GENRES", "Genre"]


@dataclasses.dataclass(frozen=True)
class Genre:
    """Sentences of one kind of document.

    Attributes:
      opening: alternatives for the first sentence.
      body: sentences of which some are drawn, without repetition.
      closing: alternatives for the last sentence.
      body_sentences: fewest and most sentences drawn from the body.
    """

    opening: tuple[str, ...]
    body: tuple[str, ...]
    closing: tuple[str, ...]
    body_sentences: tuple[int, int] = (2, 4)


GENRES: dict[str, Genre] = {
    "news": Genre(
        opening=(
            "{place:t}, {date}. {event} drew {many} people to the {building} on {weekday}.",
            "The {building} in {street}, {place:t}, will close for repairs from {date} until {month}.",
            "A {colour} {animal} held up traffic in {street}, {place:t}, for {12-55} minutes on {weekday}.",
            "{firm:f} of {place:t} is to take on {many} hands, {few} apprentices among them.",
            "{first:a} {surname:a}, a {trade} of {place:t}, has won {price} in the {month} draw.",
            "Fire damaged a {material} store belonging to {firm:f} near {place:t} at {clock} on {weekday}.",
        ),
        body=(
            "{trade} {person} said that nobody had seen anything like it since {year}.",
            "The cost is put at {price}, of which {firm} has promised half.",
            "Tickets at {price} can be had from {person} at {3-180} {street}.",
            "A committee under {person} meets on {date} to discuss {subject}.",
            "Rain began at {clock}, and {many} visitors took shelter in the {building}.",
            "Police ask whoever lost {few} {quality} {object}s to call at the {building}.",
            "Traffic for {place} goes by way of {street} meanwhile.",
            "The prize for {crop} went to {person} of {place}, with {12-99} points.",
            "{person}, aged {61-98}, recalled the flood of {year}, when {many} cellars filled.",
            "Trains to {place} will leave at {clock} instead of {clock}.",
        ),
        closing=(
            "The mayor, {person}, gave thanks to the {trade}s of {place}.",
            "More on page {2-16}.",
            "Offers of help reach {person} at the {building}.",
            "A second meeting follows on {date} at {clock}.",
            "No one was hurt.",
        ),
    ),
    "recipe": Genre(
        opening=(
            "{place} {dish:d} with {crop:c} and {seasoning:s}, for {few} people.",
            "{crop:c} {dish:d}, as {person} made it in {place}.",
            "Winter {dish:d} of {crop:c} and {pantry:p}. Takes {25-180} minutes.",
            "A {dish:d} from the kitchen of {firm}: {crop:c}, {pantry:p}, {seasoning:s}.",
        ),
        body=(
            "Wash {150-950} grams of {crop:c} and cut them into pieces of {2-9} centimetres.",
            "Warm {30-240} grams of {pantry} in a {vessel:v} and add a pinch of {seasoning}.",
            "Stir in {few} spoons of {pantry:p}, then {few} of {pantry}.",
            "Cover the {vessel:v} and leave it for {12-90} minutes over a low flame.",
            "Crush {seasoning:s} with {seasoning} in a mortar and rub it into the {crop:c}.",
            "Pour over {120-880} millilitres of {pantry} and bring to the boil.",
            "Bake at {140-230} degrees until the top is {colour}, about {15-75} minutes.",
            "If {crop} are to be had, put in {few} of them with the {pantry}.",
            "Strain through a cloth, keep the liquid, and let it stand until {clock}.",
            "Beat {few} eggs with {seasoning} and fold them in by the spoonful.",
        ),
        closing=(
            "Serve with {crop} and a little {seasoning}.",
            "It keeps {few} days in a {vessel}.",
            "In {place} they eat it cold on {weekday}.",
            "{person} uses {pantry} instead.",
            "Enough for {3-14} plates.",
        ),
    ),
    "field_report": Genre(
        opening=(
            "Station {2-97}, {terrain:g} below {place:t}, {date}, {clock}. Observer {surname:a}.",
            "Field notes, {date}: {terrain:g} between {place:t} and {place}, altitude {12-1890} metres.",
            "Survey of the {place:t} {terrain:g}, sheet {2-64}, begun {date} in {weather}.",
            "Transect {2-48}, {terrain:g} at {place:t}. Party: {surname:a}, {surname}, {surname}.",
        ),
        body=(
            "{rock} at the surface, {rock} below {2-14} metres, dip {3-78} degrees {wind}.",
            "Counted {3-240} {animal}s, {2-19} of them young.",
            "{plant} and {plant} cover {5-95} per cent of plot {2-40}; {plant} is new here.",
            "Water at {2-19} degrees, depth {11-480} centimetres, flow {3-96} litres a second.",
            "The {instrument} read {101-989} at {clock} and {101-989} at {clock}.",
            "Soil sample {104-998} taken from the {terrain}, {colour}, smelling of {seasoning}.",
            "Tracks of a {animal} lead {wind} for {20-900} metres towards the {terrain}.",
            "{weather} stopped work until {clock}; the {instrument} was left with {surname}.",
            "An old {tree} of {2-7} metres girth marks the corner of parcel {12-380}.",
            "Nest of a {animal} in {plant}, {few} eggs, {colour} with {colour} spots.",
        ),
        closing=(
            "Return on {date} with the {instrument}.",
            "Photographs {12-90} to {91-180}.",
            "Samples sent to {person}, {place}.",
            "Left the site at {clock}, {weather}.",
            "Next station: {terrain}, {2-28} kilometres {wind}.",
        ),
    ),
    "letter": Genre(
        opening=(
            "Dear {first:b}, your parcel reached {place:t} on {weekday}, and I am {mood}.",
            "My dear {relation}, we have been {few} weeks in {place:t} and still have no {object}.",
            "Dear {first:b}, forgive a {mood} hand; I write from the {building} at {place:t}, in {weather}.",
            "Dear Mr {surname:b}, I return your {object} with thanks and {price}.",
            "Dear {first:b} and {first}, the {building} where we met is now a {trade}'s shop.",
        ),
        body=(
            "{first} has grown {mood} and talks only of {science}.",
            "The {trade} asks {price} for a {quality} {object}, and I offered {price}.",
            "Your {relation} came on {date} with {crop} from {place} and stayed until {clock}.",
            "We walked to the {terrain} and saw {3-40} {animal}s above the {tree}s.",
            "Do you remember {person}, the {trade} with the {colour} coat?",
            "The garden gives {crop} and too many {crop}; I have made {dish} for {few} houses.",
            "I sleep badly, for the {machine} next door runs until {clock}.",
            "{first} plays the {object} every evening, and the {relation} below is {mood}.",
            "Please send the {material} box, the {quality} {object} and {few} pounds of {pantry}.",
            "At number {2-140} they keep a {animal}, which is called {first}.",
        ),
        closing=(
            "Yours, {first:a}.",
            "Write before {date}. Your {mood} {relation}, {first:a}.",
            "I remain yours truly, {person}.",
            "Love to {first} and the {animal}. {first:a}",
            "Until {month}, {first:a} {surname:a}.",
        ),
    ),
    "inventory": Genre(
        opening=(
            "Inventory of the {building} at {place:t}, taken by {surname:a} on {date}.",
            "Stock of {firm}, {street}, {place:t}, as counted on {date}.",
            "Goods left by the late {person}, {trade}, of {place:t}.",
            "Store {2-60}, shelf {2-40}, checked {date} by {first:a} {surname:a}.",
        ),
        body=(
            "{2-48} {object}s, {quality}, of {material}, at {price} each.",
            "One {quality} {object}, {colour}, {material}, marked {104-998}.",
            "{2-90} sacks of {crop}, {few} of them {quality}.",
            "Item {12-99}: {object} from {place}, {year}, {quality}, {price}.",
            "{few} crates of {material}, {13-480} kilograms together, under the {quality} {object}.",
            "A {colour} {object} without its {object}, lent to {person} since {month}.",
            "{3-75} jars of {seasoning} and {3-75} of {pantry}, sealed {month} {year}.",
            "Missing: {few} {object}s, last seen with the {trade} {surname}.",
            "{12-260} yards of {colour} {material}, {quality} at one end.",
            "A {machine} by {firm}, number {1204-9870}, {quality}.",
        ),
        closing=(
            "Total {price}.",
            "Signed {surname:a} and {surname}.",
            "Valued at {price} by {person}.",
            "Keys with the {trade}.",
            "To be counted again in {month}.",
        ),
        body_sentences=(3, 5),
    ),
    "minutes": Genre(
        opening=(
            "The {place:t} parish council, {date}, {building}. Present: {surname:a}, {surname:b}, {surname}.",
            "The {place:t} {trade}s' guild met at {clock} on {date}; {surname:a} took the chair.",
            "Meeting {12-340} of the {sport} club, {place:t}, {date}. {person} kept the minutes.",
            "Committee for {subject}, {place:t}, {date}, with {few} members and {surname:a} presiding.",
        ),
        body=(
            "{surname:a} moved that {price} be spent on {subject}; {decision}.",
            "The treasurer reported {price} in hand and {price} owed to {firm}.",
            "A letter from {person} about {subject} was read: {decision}.",
            "{surname:b} asked who holds the key of the {building}; {surname} does.",
            "Repairs to the {machine} were {decision}.",
            "It was agreed to buy {few} {object}s from {firm} for {price}.",
            "{surname} will speak to the {trade} of {street} before {date}.",
            "Item {2-19}, {subject}: {decision}.",
            "Membership stands at {23-480}, {few} more than in {month}.",
            "The plan for {event} in {month} was {decision}.",
        ),
        closing=(
            "Closed at {clock}.",
            "Next meeting {date}, {clock}, at the {building}.",
            "The chair thanked {surname} for the {dish}.",
            "Any other business: {subject}.",
            "Approved, {surname:b}.",
        ),
    ),
    "biography": Genre(
        opening=(
            "{first:a} {surname:a} ({year}, {place:t}) was a {trade} and amateur of {science}.",
            "{first:a} {surname:a}, born at {place:t} to a {trade} and a {trade}, is known for {work}.",
            "{first:a} {surname:a}, a {trade}, came to {place:t} in {year} with {few} aunts and a {animal}.",
            "{surname:a}, {first:a}: teacher of {science} at {place:t} for {few} years, then {trade}.",
        ),
        body=(
            "At {12-29} {surname:a} left for {place} and learned {science} under {person}.",
            "In {year} there followed {work}, printed by {firm} in {104-985} copies.",
            "{surname:a} married {person}, a {trade}, in {month} {year}.",
            "A quarrel with {person} over {work} lasted {few} years.",
            "The winter of {year} was spent at the {terrain} near {place}, measuring {weather}.",
            "{surname:a} walked with a {object} and answered letters at {clock} only.",
            "Of {work}, only {few} pages are left, in the {building} of {place}.",
            "The {place} society for {science} gave {surname:a} a medal of {material}.",
            "From {year} {surname:a} kept {few} {animal}s and grew {crop}.",
            "The house in {street}, with its {colour} door, was sold for {price}.",
        ),
        closing=(
            "{surname:a} died at {place}, aged {41-97}.",
            "A {building} in {place} bears the name.",
            "The papers went to {person}.",
            "The year of death is uncertain; {year} is likely.",
            "Pupils included {person} and {person}.",
        ),
    ),
    "encyclopaedia": Genre(
        opening=(
            "{place:t} is a town of {1204-98700} people on the {river:r}, {3-90} miles {wind} of {place}.",
            "The {river:r} rises in the {terrain} above {place:t} and runs {12-480} kilometres to {place}.",
            "The {place:t} {animal} is a small {animal} of the {terrain}, described in {year} by {person}.",
            "{place:t} {rock} is a {colour} {rock} worked near {place} since {year}.",
            "{surname:h} is a hill of {140-1950} metres between {place:t} and {place}.",
        ),
        body=(
            "Its name is first written in {year}, as {place}.",
            "The {building} of {year}, built of {material} by {person}, has {few} floors.",
            "{crop} and {crop} are grown; {firm} employs {many}.",
            "A railway to {place} opened in {year} and closed {few} years later.",
            "{plant} and {tree} are common, {plant} is rare.",
            "Mean rainfall is {402-1890} millimetres, most of it in {month}.",
            "The {river:r} is crossed by {few} bridges, the oldest of {material}.",
            "The arms show a {colour} {animal} under {few} {colour} {object}s.",
            "In {month} {year} a flood carried off the {building} and {many} {tree}s.",
            "Every {month} the {trade}s hold {event}.",
            "It lives {few} years, weighs {12-980} grams and feeds on {crop}.",
        ),
        closing=(
            "Twin town: {place}.",
            "See also: {place}, {river}, {science}.",
            "The dialect word for it is {river}.",
            "Its patron is a {trade}.",
            "The source is {person}, {year}.",
        ),
    ),
    "ship_log": Genre(
        opening=(
            "Log of the {ship_type} {place:t}, master {surname:a}, {date}. {weather}.",
            "{ship_type} {first:q}, {place:t} for {place}, day {2-60}. {cargo} below.",
            "{date}, {clock}. The {first:q} lies off {place:t} in {few} fathoms, {weather}.",
            "Harbour book of {place:t}, {date}: in, the {ship_type} {first:q} with {cargo}.",
        ),
        body=(
            "{clock}: wind {wind}, {few} knots; shortened sail and pumped {12-90} minutes.",
            "Took on {12-940} {cargo} from {firm}, and {few} passengers for {place}.",
            "Sighted the {ship_type} {first}, {few} miles {wind}, bound for {place}.",
            "Cook {surname} burned a hand; dinner was {dish} and {crop}.",
            "The {machine} failed through {fault} and was mended by {clock}.",
            "Sounded {4-48} fathoms, {colour} {rock}.",
            "{surname} saw a {animal} on the yard at {clock}, a thing thought {mood}.",
            "Paid {price} in dues at {place} and {price} to the pilot {surname}.",
            "Lost overboard one {quality} {object} and {few} {object}s.",
            "Barometer {701-789}, falling until {clock}, with {weather}.",
        ),
        closing=(
            "Run {23-240} miles.",
            "Anchored at {clock} under {place}.",
            "All well. {surname:a}.",
            "Watch handed to {surname}.",
            "Position doubtful.",
        ),
    ),
    "repair": Genre(
        opening=(
            "Job {1204-9870}: {machine:m} of {firm}, {place:t}, stopped on {date} by {fault}.",
            "Repair sheet {204-998}, {machine:m}, {building}, {place:t}. Reported by {person} at {clock}.",
            "{machine:m} number {12-96}, {place:t} depot: {fault} found on {date} by {surname:a}.",
            "Called to {street}, {place:t}, {clock}: the {machine:m} shook and smelt of {seasoning}.",
        ),
        body=(
            "Took off the {quality} plate and found {fault} and {fault}.",
            "Fitted {few} {material} washers of {3-48} millimetres and a {quality} pin.",
            "Turned a new shaft of {material}, {104-985} by {12-96} millimetres, at {price}.",
            "The {machine:m} ran {12-90} minutes at {120-980} turns and then stopped: {fault}.",
            "{surname} fetched a {object} from {firm}, lost {few} hours.",
            "Cleaned out {colour} sludge and {few} {plant} roots.",
            "The maker, {firm}, gives {year} as the year of the casting.",
            "Pressure now {12-96}, before {2-11}; the needle trembles at {14-88}.",
            "Belt {2-40} is {quality} and should be renewed by {month}.",
            "Oil: {2-19} litres. Grease: {110-960} grams. Rags: {few}.",
        ),
        closing=(
            "Charged {price} to {surname}.",
            "Tested {clock}, in order. {surname:a}.",
            "Look at it again on {date}.",
            "{few} hours, two {trade}s.",
            "Do not run above {120-680} turns.",
        ),
    ),
    "timetable": Genre(
        opening=(
            "From {date} the {place:t} {ship_type} leaves {street} at {clock} and {clock}.",
            "Line {2-48}, {place:t} to {place} by way of {place}, {few} coaches daily from {clock}.",
            "School term at {place:t}: begins {date}, ends {date}; {science} on {weekday} at {clock}.",
            "Programme of the {place:t} {event}, {date}, doors at {clock}.",
        ),
        body=(
            "{clock} {place}, {clock} {place}, {clock} {place}.",
            "On {weekday} the {clock} waits for the {ship_type} from {place}.",
            "{clock}: {person} on {science}, in the {building}.",
            "Fare {price}; a {object} travels for {price}, a {animal} for {price}.",
            "{clock}: {sport}, {place} against {place}, on the {terrain}.",
            "Not on {date}, nor when there is {weather}.",
            "{clock}: tea, {dish} and {crop} by {firm}.",
            "Change at {place} for {place} and the {building}, {12-55} minutes.",
            "{clock}: {event}, led by {person}, {trade}.",
            "Room {2-90}: {person}, class {2-9}, {23-48} pupils, {work}.",
        ),
        closing=(
            "Inquiries: {person}, {street}.",
            "Printed by {firm}.",
            "Valid until {date}.",
            "Bring a {object}.",
            "The last leaves at {clock}.",
        ),
    ),
    "advertisement": Genre(
        opening=(
            "For sale at {3-180} {street}, {place:t}: {quality} {object:o}, {material}, {price}.",
            "Lost between {place:t} and {place} on {date}: a {colour} {object:o} with {quality} strap.",
            "Wanted by {firm}, {place:t}: a {mood} {trade}, {price} a week, from {date}.",
            "To let in {place:t}: {few} rooms over the {trade}, view of the {terrain}, {price} a month.",
            "{person}, {trade} in {place:t}, teaches {science} and the {object:o}.",
        ),
        body=(
            "Also {few} {object}s, {colour}, and a {machine} needing work after {fault}.",
            "Made by {firm} in {year}; {few} owners, the last a {trade}.",
            "Would exchange for {crop}, {cargo} or a {quality} {object}.",
            "Apply to {person}, {street}, not before {clock}.",
            "The finder receives {price} and a {dish}.",
            "Knowledge of {science} and {sport} is welcome, a {animal} is not.",
            "Ask for {first}; the dog is called {first} and is {mood}.",
            "Engraved {first} {surname}, {place}, {year}.",
            "Seen last by the {building}, {clock}, in {weather}.",
            "Lessons on {weekday} at {clock}, {price}, {few} places left.",
        ),
        closing=(
            "Box {104-998}, this paper.",
            "No {trade}s.",
            "Letters to {person}, {place}.",
            "Cash only.",
            "Offer ends {date}.",
        ),
    ),
}
